"""A consumer keeps running during ``lakeproof contract apply``, and continues with the new contract."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.consumer.lake import Invoke, rows
from tests.consumer.test_cli import environment
from tests.evolving import NEW, OLD, V2, land, write_contract
from tests.lakes import changed
from tests.programs import forked

from consumer.cli import app
from lakeproof.errors import UsageError
from lakeproof.settings import Settings

DEADLINE_SECONDS = 240
BUSY = """\
name: busy
silver: orders
keys: [count]
window: {size: 1 hour}
measures:
  units: sum(count)
  spent: sum(total)
"""


@pytest.fixture
def settings(lake_settings: Settings, tmp_path: Path) -> Settings:
    (tmp_path / "gold").mkdir()
    return changed(lake_settings, LAKE_CONTRACTS=tmp_path / "contracts", LAKE_GOLD=tmp_path / "gold")


def run(settings: Settings, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*forked(command[0]), *command[1:]],
        env=environment(settings) | {"LAKE_GOLD": str(settings.gold)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


@pytest.mark.all
@pytest.mark.spark
def test_a_consumer_that_runs_takes_a_contract_that_is_applied(
    settings: Settings, tmp_path: Path, invoke: Invoke
) -> None:
    write_contract(settings, "1.0.0")
    (settings.gold / "busy.yaml").write_text(BUSY)
    land(settings, "1.json", OLD, OLD | {"id": "early", "note": "not yet"})
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "consumer", "run", "orders", "--trigger", "200 milliseconds"],
            env=environment(settings) | {"LAKE_GOLD": str(settings.gold)},
            stderr=output,
        )

    def lines(event: str) -> list[dict[str, Any]]:
        whole, _, _ = log.read_text().rpartition("\n")  # the last line may be half written
        found = [json.loads(line) for line in whole.splitlines() if line[:1] == "{"]
        return [line for line in found if line["event"] == event]

    def micro_batches() -> list[dict[str, Any]]:
        return [line for line in lines("micro-batch") if line["files"]]

    def until(done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not done():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)

    try:
        until(lambda: len(lines("gold micro-batch")) == 1)
        write_contract(settings, "1.1.0", V2)
        applied = run(settings, "lakeproof", "contract", "apply", "orders")
        assert applied.returncode == 0, applied.stderr
        land(settings, "2.json", NEW, NEW | {"id": "late", "count": 7, "note": "now"})
        until(lambda: len(lines("gold micro-batch")) == 2)
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == 0, log.read_text()
    finally:
        process.kill()
    assert [(line["contract"], line["bronze"], line["dead_letters"]) for line in micro_batches()] == [
        ("1.0.0", 1, 1),
        ("1.1.0", 2, 0),
    ]
    found = {
        row["id"]: (row["_contract_version"], row["note"], row["count"]) for row in rows(settings, "bronze.orders")
    }
    assert found == {
        "old": ("1.0.0", None, 7),
        "new": ("1.1.0", "hello", NEW["count"]),
        "late": ("1.1.0", "now", 7),
    }
    assert [row["_contract_version"] for row in rows(settings, "dead_letters.orders")] == ["1.0.0"]
    of_gold = {row["count"]: (row["units"], row["spent"]) for row in rows(settings, "gold.busy")}
    assert of_gold == {
        7: (14, Decimal("123456789013580246.14")),
        NEW["count"]: (NEW["count"], Decimal("123456789012345678.25")),
    }
    checked = run(settings, "reader", "verify", "orders", "--values")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    invoke(settings, app, "run", "orders", "--available-now")


@pytest.mark.spark
def test_a_contract_that_was_not_applied_is_refused_when_a_consumer_starts(settings: Settings, invoke: Invoke) -> None:
    write_contract(settings, "1.0.0")
    assert run(settings, "lakeproof", "contract", "apply", "orders").returncode == 0
    write_contract(settings, "1.1.0", V2)
    with pytest.raises(UsageError, match=r"1\.1\.0 of orders has not been applied") as refused:
        invoke(settings, app, "run", "orders", "--available-now")
    assert "Run `lakeproof contract apply orders`." in refused.value.hint
