"""A consumer is killed while it maintains its tables and others read them: nothing is lost or doubled."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.consumer.replays import STREAM, batch, land, order, write_contract
from tests.lakes import changed, variables
from tests.selection import ALL

from lakeproof.catalog import open_catalog
from lakeproof.settings import Settings
from reader.connect import connect
from reader.verify.driver import verify

pytestmark = [pytest.mark.spark, pytest.mark.all]

KILLS = 2
_DEADLINE_SECONDS = 180


class Consumer:
    """Consumer in a process of its own."""

    def __init__(self, settings: Settings, log: Path, *more: str, files: int = 2) -> None:
        self.log = log
        environment = {name: str(value) for name, value in variables(settings).items()}
        own = {"LAKE_SPARK_UI_PORT": "0", "LAKE_SETTLE_SECONDS": "0", "LAKE_MAX_FILES_PER_MICRO_BATCH": str(files)}
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "consumer", "run", STREAM, *more],
                env={**os.environ, **environment, **own},
                stdout=output,
                stderr=output,
            )

    def events(self, event: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.log.read_text().splitlines() if line[:1] == "{"]
        return [line for line in found if line["event"] == event]

    def until(self, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not done():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Repeat some work within the context; raise its error at the end."""
    ending, errors = threading.Event(), []

    def again() -> None:
        while not ending.is_set():
            try:
                work()
            except Exception as error:  # noqa: BLE001 - the test fails with it
                errors.append(error)
                return

    thread = threading.Thread(target=again)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
    assert not errors, errors


@pytest.mark.long
def test_a_consumer_that_is_killed_while_it_maintains_loses_and_doubles_nothing(
    lake_settings: Settings, tmp_path: Path
) -> None:
    settings = changed(
        lake_settings,
        LAKE_CONTRACTS=tmp_path / "contracts",
        LAKE_GOLD=tmp_path / "gold",
        LAKE_MAINTENANCE_EVERY_MINUTES=0.05,
        LAKE_MAINTENANCE_KEEP_HOURS=0.02,
    )
    write_contract(settings, right=True)
    landed: list[str] = []

    def land_one() -> None:
        name = f"o{len(landed)}"
        land(settings, f"{len(landed)}.json", batch(order(len(landed)), order(len(landed), kind="unknown")))
        landed.append(name)
        time.sleep(0.2)

    seen = {"duckdb": [0], "pyiceberg": [0]}

    def look() -> None:
        with connect(settings) as session:
            seen["duckdb"].append(session.fetch(f"select count(*) from bronze.{STREAM}")[0][0])
        seen["pyiceberg"].append(open_catalog(settings).load_table(f"bronze.{STREAM}").scan().to_arrow().num_rows)

    land_one()
    Consumer(settings, tmp_path / "first.log", "--available-now").process.wait()
    with beside(land_one), beside(look):
        for number in range(KILLS if ALL else 1):
            consumer = Consumer(settings, tmp_path / f"{number}.log", "--maintain", "--trigger", "200 milliseconds")
            consumer.until(lambda: len(consumer.events("maintained")) > number)  # noqa: B023 - called at once
            time.sleep(0.3 * number)
            consumer.process.kill()
            consumer.process.wait()
        consumer = Consumer(settings, tmp_path / "last.log", "--maintain", "--trigger", "200 milliseconds")
        consumer.until(lambda: any(each.get("compacted") for each in consumer.events("maintained")))
        consumer.process.terminate()
        assert consumer.process.wait() == 0, consumer.log.read_text()
    # On a busy machine, hundreds of files are left: two at a time took half an hour.
    assert Consumer(settings, tmp_path / "drained.log", "--available-now", files=500).process.wait() == 0

    for counts in seen.values():
        assert len(counts) > 3
        assert counts == sorted(counts)
    for table in ("bronze.orders", "silver.orders"):
        found = open_catalog(settings).load_table(table).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()
        assert sorted(found) == sorted(landed)
    assert [each.clean for each in verify(settings, STREAM)] == [True]
    assert not any("not published" in log.read_text() for log in tmp_path.glob("*.log"))
