"""The operator's commands for a stream that the breaker has paused, and their exit codes."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.consumer.breakers import apply_contract, write_contract
from tests.consumer.lake import Invoke, rows
from tests.consumer.test_cli import EVENT, consumer, environment, land
from tests.lakes import changed
from tests.logs import failure
from tests.pages import blocks
from tests.programs import forked
from tests.test_docs import shell

from consumer.cli import app
from lakeproof.errors import PausedError
from lakeproof.settings import Settings

pytestmark = pytest.mark.spark

NOW = ("run", "events", "--available-now", "--to", "silver")


def land_bad(settings: Settings, kind: str = "\x1b[2J") -> None:
    records = [EVENT | {"event_id": f"{kind}{index}", "event_type": kind} for index in range(8)]
    name = f"{kind.encode().hex()}.json"
    (settings.home / "landing" / "events" / name).write_text(json.dumps(records))


@pytest.mark.all
def test_a_pause_from_its_start_to_its_end(lake_settings: Settings, tmp_path: Path, invoke: Invoke) -> None:
    folder = tmp_path / "contracts"
    write_contract(folder, "{share: 0.5, units: 4, over: micro-batch, action: pause}")
    settings = changed(lake_settings, LAKE_CONTRACTS=folder, LAKE_SETTLE_SECONDS=0)
    land(settings, 0, 2)
    land_bad(settings)
    done = consumer(settings, *NOW)
    assert done.returncode == 5, done.stderr
    failed = failure(done.stderr)
    assert "8 of 10 units of a micro-batch are bad (80.0%" in failed["message"]
    assert "consumer accept events" in failed["hint"]
    assert failed["retryable"] is False
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr
    shown = consumer(settings, "status", "events")
    assert shown.returncode == 5
    assert "paused" in shown.stdout
    assert "8 of 10 units" in shown.stdout
    assert "\x1b" not in shown.stdout
    as_json = consumer(settings, "status", "events", "--json")
    assert json.loads(as_json.stdout)[0]["breaker"]["reasons"] == {"not_allowed": 8}

    with pytest.raises(PausedError):
        invoke(settings, app, *NOW)
    assert rows(settings, "bronze.events") == []
    accepted = consumer(settings, "accept", "events")
    assert (accepted.returncode, accepted.stderr) == (0, "Accepted. The next run commits it.\n")
    assert "8 of 10 units" in accepted.stdout
    invoke(settings, app, *NOW)
    assert [len(rows(settings, f"{name}.events")) for name in ("bronze", "dead_letters", "silver")] == [2, 8, 2]
    nothing = consumer(settings, "accept", "events")
    assert (nothing.returncode, nothing.stderr) == (0, "Nothing of events is paused.\n")
    assert consumer(settings, "status", "events").returncode == 4


@pytest.mark.all
def test_accept_bad_accepts_what_is_paused_and_nothing_else(
    lake_settings: Settings, tmp_path: Path, invoke: Invoke
) -> None:
    folder = tmp_path / "contracts"
    write_contract(folder, "{share: 0.5, units: 4, over: micro-batch, action: pause}")
    settings = changed(lake_settings, LAKE_CONTRACTS=folder, LAKE_SETTLE_SECONDS=0)
    land(settings, 0, 1)
    land_bad(settings)
    early = consumer(settings, *NOW, "--accept-bad")
    assert early.returncode == 2, early.stderr
    assert "Nothing of events is paused" in failure(early.stderr)["message"]
    with pytest.raises(PausedError):
        invoke(settings, app, *NOW)
    invoke(settings, app, *NOW, "--accept-bad")
    assert len(rows(settings, "dead_letters.events")) == 8


def test_accept_bad_is_not_for_modes(lake_settings: Settings) -> None:
    done = consumer(lake_settings, "run", "dedupe", "--accept-bad")
    assert done.returncode == 2
    assert "--accept-bad cannot be used with dedupe" in failure(done.stderr)["message"]


@pytest.mark.all
def test_the_page_about_breakers_says_what_to_do(lake_settings: Settings, tmp_path: Path, invoke: Invoke) -> None:
    folder = tmp_path / "contracts"
    pause = "{share: 0.5, units: 4, over: micro-batch, action: pause}"
    write_contract(folder, pause)
    settings = changed(lake_settings, LAKE_CONTRACTS=folder, LAKE_SETTLE_SECONDS=0)
    own = {name: value for name, value in environment(settings).items() if name.startswith("LAKE_")}
    look, fix, accept = blocks("docs/operations/breaker.md", "sh")
    land(settings, 0, 2)
    land_bad(settings)
    with pytest.raises(PausedError):
        invoke(settings, app, *NOW)
    assert "exit code 5" in shell(look, own)
    assert "8 of 10 units" in shell(accept, own)
    assert len(rows(settings, "dead_letters.events")) == 8
    land_bad(settings, "teleport")
    with pytest.raises(PausedError):
        invoke(settings, app, *NOW)
    write_contract(folder, pause, "teleport", version="2.1.0")
    shell(fix, own)
    assert [len(rows(settings, f"{name}.events")) for name in ("bronze", "dead_letters")] == [10, 8]
    summary = subprocess.run(
        [*forked("reader"), "summary", "events"], env=environment(settings), capture_output=True, text=True, check=True
    )
    assert "Too many bad units" not in summary.stdout, "the floor of the last micro-batch is reached, but all are good"
    land_bad(settings, "warned")
    write_contract(folder, "{share: 0.5, units: 4, over: micro-batch}", version="2.1.1")
    apply_contract(settings)
    invoke(settings, app, *NOW)
    summary = subprocess.run(
        [*forked("reader"), "summary", "events"], env=environment(settings), capture_output=True, text=True, check=True
    )
    said = " ".join(summary.stdout.split())
    assert "Too many bad units: 8 of 8 in the newest micro-batch (100.0%; the breaker of the contract trips" in said
