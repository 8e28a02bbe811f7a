"""Each phase of a bronze micro-batch separately, in one process without Spark: processor seconds.

Run as a side: ``python -m benchmarks.sides.model_phases FILES REPEAT``.
"""

import json
import os
import pickle
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import schema_to_pyarrow

from benchmarks.model_inputs import LARGE, SMALL
from consumer.iceberg.data_files import Target
from consumer.iceberg.tasks import write_batches
from consumer.layers.bronze.ledger import MicroBatch, Outcome, Sums, ledger_rows
from consumer.layers.bronze.tasks import JudgedParts, Task, write_group
from consumer.sources.envelope import SMALL_BYTES, Envelope
from consumer.sources.files.discovery import Discovery
from consumer.sources.files.source import FileReader
from lakeproof.catalog import open_catalog
from lakeproof.contracts import Contract, load_contract
from lakeproof.judge.batch import Judge
from lakeproof.landing.zone import LandingZone, zone_at
from lakeproof.settings import Settings, load_settings
from lakeproof.state.landing_log import LandedFile, LandingLog
from lakeproof.tables.names import stream_tables
from lakeproof.tables.schemas import ensure_tables

STREAM = "events"
_GROUPS = (1, 4)
_CORES = 4
_NOW = datetime(2026, 11, 21, tzinfo=UTC)


def main() -> None:
    """Time all phases at all sizes; print samples."""
    files, repeat = int(sys.argv[1]), int(sys.argv[2])
    settings = load_settings()
    contract = load_contract(settings.contracts, STREAM)
    samples = []
    for turn in range(repeat):
        samples += _listing(settings, [files, files * 2, files * 4, files * 8], files * 16, turn)
    samples += list(_in_tasks(settings, contract, files, repeat))
    print(json.dumps({"samples": samples}))


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the processor seconds of some work, and its result."""
    began = time.process_time()
    done = work()
    return time.process_time() - began, done


def target_of(settings: Settings, name: str) -> Target:
    """Return the target for data files of a table, from PyIceberg's metadata."""
    table = open_catalog(settings).load_table(name)
    (day,) = table.spec().fields
    return Target(
        folder=f"{table.location()}/data",
        schema=schema_to_pyarrow(table.schema()),
        day_of=table.schema().find_column_name(day.source_id) or "",
        partition=day.name,
    )


def _listing(settings: Settings, sizes: Sequence[int], held_out: int, turn: int) -> Iterator[dict[str, Any]]:
    """List a landing zone for the first time; plan a micro-batch of all its files, and write the rows of the ledger."""
    contract = load_contract(settings.contracts, STREAM)
    ensure_tables(open_catalog(settings), contract)
    ledger = target_of(settings, stream_tables(STREAM).ledger)
    for size in [*sizes, held_out]:
        root = Path(os.environ["BENCH_FOLDER"]) / f"landing-{turn}-{size}"
        _touch(root, size)
        database = f"sqlite:///{root}.db"
        zone, log = zone_at(root.as_uri(), settings.s3), LandingLog(database, STREAM)
        discovery = Discovery(zone, log, timedelta(0))
        first, _ = timed(discovery.sweep)
        again, _ = timed(discovery.sweep)
        recent, _ = timed(discovery.recent)
        # SQLite has the pages in the database file, or still in the write-ahead log.
        of_state = max(path.stat().st_size for path in root.parent.glob(f"{root.name}.db*"))
        plan, parts = timed(lambda log=log, size=size, zone=zone: _planned(log, size, zone))
        batch = MicroBatch(0, "checkpoint", contract, _NOW)
        whole = [each for group in parts for each in group]
        write, _ = timed(lambda whole=whole, batch=batch: _ledger(whole, batch, ledger, settings))
        yield {"phase": "list", "files": size, "seconds": first, "state_bytes": of_state}
        yield {"phase": "list again", "files": size, "seconds": again}
        yield {"phase": "list recent", "files": size, "seconds": recent}
        yield {"phase": "plan", "files": size, "seconds": plan}
        yield {"phase": "ledger", "files": size, "seconds": write}
        if turn == 0:
            for name, work in {
                "memory of list": lambda zone=zone, root=root: Discovery(
                    zone, LandingLog(f"sqlite:///{root}-2.db", STREAM), timedelta(0)
                ).sweep(),
                "memory of plan and ledger": lambda log=log, size=size, zone=zone, batch=batch: _ledger(
                    [each for group in _planned(log, size, zone) for each in group], batch, ledger, settings
                ),
            }.items():
                yield {"phase": name, "files": size, "bytes": _peak(work)}


def _peak(work: Callable[[], Any]) -> int:
    """Return the maximum memory of Python objects during some work, in bytes."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def _touch(root: Path, count: int) -> None:
    """Create files in folders per hour, each with 1,000, as producers land them."""
    for number in range(count):
        if number % 1_000 == 0:
            folder = root / f"dt=2026-11-{1 + number // 24_000:02d}" / f"hh={number // 1_000 % 24:02d}"
            folder.mkdir(parents=True)
        (folder / f"{number:09d}.json").write_bytes(b"[]")


def _planned(log: LandingLog, size: int, zone: LandingZone) -> list[list[LandedFile]]:
    """Read the landing log, divide the files among tasks, and pickle them."""
    groups = FileReader(zone).groups(log.files(0, size), _CORES)
    for group in groups:
        pickle.dumps(group)
    return groups


def _ledger(parts: list[LandedFile], batch: MicroBatch, target: Target, settings: Settings) -> None:
    outcomes: Counter[Outcome] = Counter({(each.name, None): 100 for each in parts})
    hashes = dict.fromkeys((each.name for each in parts), "0" * 32)
    write_batches([ledger_rows(parts, outcomes, {}, hashes, batch, Sums())], target, settings.s3)


def _in_tasks(settings: Settings, contract: Contract, files: int, repeat: int) -> Iterator[dict[str, Any]]:
    """Read, judge and write files, as a task does."""
    names = stream_tables(STREAM)
    targets = target_of(settings, names.bronze), target_of(settings, names.dead_letters)
    batch = MicroBatch(0, "checkpoint", contract, _NOW)
    for records, folder in ((LARGE, os.environ["MODEL_LARGE"]), (SMALL, os.environ["MODEL_SMALL"])):
        zone = zone_at(Path(folder).as_uri(), settings.s3)
        reader = FileReader(zone)
        listed = [LandedFile(0, name, seen.size, seen.etag, seen.modified_at) for name, seen in sorted(zone.list())]
        task = Task(batch, *targets, reader, settings.s3, settings.limits, judge=settings.judge)
        write_group(listed[:4], task)  # warm up imports
        for turn in range(repeat):
            for size in sizes_in_tasks(records, files):
                for count in _GROUPS:
                    groups = [group for number in range(count) if (group := listed[number:size:count])]
                    read, envelopes = timed(partial(_read, reader, groups, settings))
                    judge, units = timed(partial(_judged, envelopes, contract, settings))
                    whole, written = timed(partial(_written, groups, task))
                    shape = {"files": size, "rows": units, "tasks": len(groups), "turn": turn}
                    bytes_ = sum(each.size for group in groups for each in group)
                    data_files = sum(len(each.bronze) + len(each.dead_letters) for each in written)
                    yield {"phase": "read", **shape, "bytes": bytes_, "seconds": read}
                    yield {"phase": "judge", **shape, "seconds": judge}
                    yield {"phase": "write", **shape, "data_files": data_files, "seconds": whole - read - judge}


def sizes_in_tasks(records: int, files: int) -> list[int]:
    """Return the numbers of files of the samples."""
    return [max(files // part, 4) for part in ((16, 8, 4, 2) if records == LARGE else (4, 2, 1))]


def _read(reader: FileReader, groups: Sequence[list[LandedFile]], settings: Settings) -> list[list[Envelope]]:
    return [list(reader.envelopes(group, settings.limits, None)) for group in groups]


def _written(groups: Sequence[list[LandedFile]], task: Task[LandedFile]) -> list[JudgedParts[LandedFile]]:
    return [write_group(group, task) for group in groups]


def _judged(groups: Sequence[list[Envelope]], contract: Contract, settings: Settings) -> int:
    """Judge envelopes as tasks do; return the number of units."""
    return sum(_judged_by_task(group, contract, settings) for group in groups)


def _judged_by_task(envelopes: Sequence[Envelope], contract: Contract, settings: Settings) -> int:
    judge = Judge(contract, settings.limits, settings.judge)
    small = [each.value or b"" for each in envelopes if len(each.value or b"") <= SMALL_BYTES]
    large = [each.value or b"" for each in envelopes if len(each.value or b"") > SMALL_BYTES]
    together = sum(len(x.judged.good) + len(x.judged.bad) for x in judge.judge_together(small)) if small else 0
    return together + sum(len(x.good) + len(x.bad) for value in large for x in judge.judge(value))


if __name__ == "__main__":
    main()
