"""The commands for proofs, as shown on their page."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.pages import blocks
from tests.reader.lake import Run
from tests.reader.verify.book.test_new import NEW, BookLake, made

from lakeproof.settings import Settings
from lakeproof.state.proofs import ProofKind, ProofOutcome, last_proofs

PAGE = "docs/operations/proofs.md"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> BookLake:
    return made(tmp_path_factory.mktemp("proofs"))


@pytest.fixture
def environment(lake: BookLake, reader_environment: Callable[[Settings], dict[str, str]]) -> dict[str, str]:
    return reader_environment(lake.settings) | {"LAKE_GOLD": str(lake.settings.gold)}


@pytest.mark.all
def test_the_page_about_proofs(lake: BookLake, environment: dict[str, str], reader: Run) -> None:
    ask, _ = blocks(PAGE, "sh")
    said = ""
    for line in ask.splitlines():
        words = line.split()
        assert words.pop(0) == "reader"
        done = reader(lake.settings, *words)
        assert (done.returncode, done.stderr) == (0, "")
        said += done.stdout
    assert "proven since proof 1 of" in said
    assert "hashes of new files" in said
    last, *_ = last_proofs(lake.settings.state.database)
    assert last.digest[:12] in said
    listed = json.loads(reader(lake.settings, "proofs", "events", "--json").stdout)
    assert [each["number"] for each in listed] == list(range(last.number, 0, -1))
    assert listed[0]["digest"] == last.digest
    assert reader(lake.settings, "proofs", "other", "--json").stdout == "[]\n"


@pytest.mark.all
def test_a_follower_proves_what_is_new_until_a_signal(lake: BookLake, environment: dict[str, str]) -> None:
    _, follow = blocks(PAGE, "sh")
    assert follow.split() == ["reader", "verify", "events", "--follow", "--every", "60"]
    command = [sys.executable, "-m", *follow.split()[:-1], "1"]
    with subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines = [process.stdout.readline()]
        # The lake is filled with more commits than by a consumer, and with old times: no proof may look meanwhile.
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            lake.take(5, NEW.replace(b"n1", b"n2"))
        finally:
            process.send_signal(signal.SIGCONT)
        while not re.search(r" [1-9]\d* data files? read", lines[-1]) or len(lines) == 1:
            lines.append(process.stdout.readline())
            assert lines[-1], "the follower ended by itself"
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    assert all(re.fullmatch(r"\S+ \S+ events: clean; .* read in [\d.]+ s \(proof \d+\)\n", line) for line in lines)
    (last,) = last_proofs(lake.settings.state.database)
    assert (last.kind, last.outcome) == (ProofKind.NEW, ProofOutcome.CLEAN)


@pytest.mark.all
def test_a_follower_that_is_stopped_within_a_proof_leaves_nothing(lake: BookLake, environment: dict[str, str]) -> None:
    before = last_proofs(lake.settings.state.database)
    command = [sys.executable, "-m", "reader", "verify", "events", "--follow"]
    with subprocess.Popen(
        command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        # Once DuckDB is loaded, the program has its signal handler, and a proof starts.
        maps = Path(f"/proc/{process.pid}/maps")
        while "duckdb" not in maps.read_text():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=120)
    assert process.returncode in (0, 130)
    assert error == b""
    if not out:
        assert last_proofs(lake.settings.state.database) == before


def test_without_a_book_the_list_says_what_to_do(lake_settings: Settings, reader: Run) -> None:
    done = reader(lake_settings, "proofs")
    assert done.returncode == 3
    assert "There is no book of proofs" in done.stderr
