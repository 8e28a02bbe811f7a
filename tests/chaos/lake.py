"""A lake under test: batches land in it, and the harness knows where each unit belongs."""

import json
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import psycopg
from tests.chaos.environment import ROOT, clean_environment
from tests.chaos.letters import Letters, Tried, of_kind
from tests.chaos.orders import write_whole

from lakeproof.catalog import open_catalog
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import SilverStrategy, load_contract
from lakeproof.landing.zone import landing_zone
from lakeproof.settings import S3Settings, Settings, settings_of
from lakeproof.storage.local import local_path
from lakeproof.storage.s3 import s3_client
from lakeproof.tables.names import (
    ATTEMPT,
    LETTER,
    MARKER,
    OUTCOME,
    POSITION,
    SOURCE,
    gold_query,
    gold_table,
    silver_query,
    silver_tables,
    stream_tables,
)
from producer.batches import Batch, BatchPlan, make_batches
from producer.encoding import JsonStyle
from producer.faults import Chances

if TYPE_CHECKING:
    from pyiceberg.table import Table

STREAM = "events"
PRODUCT = "user_activity"
TABLES = stream_tables(STREAM)
SILVER = silver_tables(STREAM)
GOLD = gold_table(PRODUCT)
OF_BRONZE = (TABLES.bronze, TABLES.dead_letters, TABLES.ledger)
OF_REPLAYS = (*OF_BRONZE, TABLES.attempts)
OF_LAYERS = (SILVER.kept, SILVER.conflicts, SILVER.late, SILVER.ledger, GOLD)
Unit = tuple[str, str, int]
"""Table, source, position."""

_KEY = "event_id"
_RECORDS = 20
_ENUM = "        enum:\n"
_CHANCES = Chances(corruption=0.15, invalid_schema=0.15, extra_field=0.1, duplicate=0.15)


@dataclass(frozen=True)
class Count:
    """Units that no table has, and rows without a unit of their own.

    In silver, a unit is a key of bronze, or a decided row of bronze; in gold, a record in a window.
    """

    lost: int
    doubled: int


@dataclass(frozen=True)
class Verified:
    """Result of ``reader verify``."""

    exit_code: int
    report: dict[str, Any]
    said: str

    def off(self) -> dict[str, str]:
        """Sources that are not ok, with their status."""
        return {found["source"]: found["status"] for stream in self.report["streams"] for found in stream["sources"]}


class Lake:
    """A lake for tests.

    Parameters
    ----------
    folder
        For catalog, landing log and logs; if `bucket` is None, for everything.
    bucket
        For landing zone, warehouse and checkpoints.
    s3
        Access to S3 for harness and reader.
    seed
        Determines the landed data.
    others
        Other settings, for example of a catalog and a landing log outside of the folder.
    strategy
        Strategy of silver.
    """

    run_arguments: tuple[str, ...] = ()
    """Arguments that tell ``consumer run`` where the batches are."""

    def __init__(
        self,
        folder: Path,
        bucket: str | None,
        s3: S3Settings,
        seed: int,
        others: Mapping[str, str] | None = None,
        strategy: SilverStrategy = SilverStrategy.MERGE,
    ) -> None:
        folder.mkdir(parents=True)
        self.strategy = strategy
        self._contracts = _contracts(folder / "contracts", strategy)
        self.folder = folder
        root = f"s3://{bucket}" if bucket else folder.as_uri()
        self.settings = settings_of(
            {
                "LAKE_HOME": folder,
                "LAKE_LANDING": f"{root}/landing",
                "LAKE_WAREHOUSE": f"{root}/warehouse",
                "LAKE_CHECKPOINTS": f"{root}/checkpoints",
                "LAKE_CONTRACTS": self._contracts,
                "LAKE_GOLD": ROOT / "gold",
                "LAKE_JARS": ROOT / "target" / "jars" / "spark",
                **(others or {}),
            }
        ).model_copy(update={"s3": s3})
        self._land_in(self.settings)
        self.expected: set[Unit] = set()
        self.files: list[str] = []
        self.letters: Letters | None = None
        """Model of the dead letters, if they are replayed in this lake."""
        # Tasks decide the silver of every other lake with `merge`.
        self.others: dict[str, str] = {"LAKE_SILVER_DRIVER_ROWS": "0"} if seed % 2 else {}
        """Other environment variables of the consumer."""
        self.kinds: list[str] = []
        """Kinds of events that the contract refuses, or did refuse."""
        self._batches = self._make(seed)

    def environment(self, s3: S3Settings) -> dict[str, str]:
        """Return the environment of a program that uses the lake, with its own access to S3."""
        own = {
            "LAKE_HOME": str(self.settings.home),
            "LAKE_LANDING": self.settings.landing.uri,
            "LAKE_WAREHOUSE": self.settings.catalog.warehouse_uri,
            "LAKE_CHECKPOINTS": self.settings.state.checkpoints,
            "LAKE_CONTRACTS": str(self._contracts),
            "LAKE_GOLD": str(ROOT / "gold"),
            "LAKE_JARS": str(ROOT / "target" / "jars" / "spark"),
            "LAKE_SPARK_UI_PORT": "0",
            "LAKE_SETTLE_SECONDS": "0",
            "LAKE_MAX_FILES_PER_MICRO_BATCH": "4",
            "LAKE_CATALOG": self.settings.catalog.kind,
            "LAKE_CATALOG_URI": self.settings.catalog.uri,
            "LAKE_LANDING_LOG_URI": self.settings.state.database,
        }
        if s3.endpoint_url and s3.access_key_id and s3.secret_access_key:
            own |= {
                "AWS_ENDPOINT_URL": s3.endpoint_url,
                "AWS_ACCESS_KEY_ID": s3.access_key_id,
                "AWS_SECRET_ACCESS_KEY": s3.secret_access_key.get_secret_value(),
                "AWS_REGION": s3.region,
            }
        return clean_environment() | own | self.others

    def change(self, settings: Settings) -> None:
        """Reach the lake in another way from now on, with the same files, catalog and landing log."""
        self.settings = settings
        self._land_in(settings)

    def land(self, files: int) -> list[str]:
        """Land batches, and record the expected place of each unit; return their names."""
        landed = []
        for _ in range(files):
            batch = next(self._batches)
            source = self._put(batch)
            self.expect(source, batch)
            landed.append(source)
        return landed

    def land_refused(self, files: int, every: int = 3) -> str:
        """Land batches in which every n-th record is of a kind that the contract refuses; return the kind.

        Only the first batch is cut short.
        """
        kind = f"kind_{len(self.kinds) + 1}"
        self.kinds.append(kind)
        for number in range(files):
            batch = next(self._batches)
            batch = of_kind(replace(batch, corrupt=number == 0), kind, every)
            self.expect(self._put(batch), batch, kind)
        return kind

    def allow(self, kind: str) -> None:
        """Let the contract accept a kind of events from now on."""
        assert self.letters
        self.letters.allow(kind)
        self.write_contract(lambda text: text.replace(_ENUM, f"{_ENUM}          - value: {kind}\n", 1))

    def write_contract(self, change: Callable[[str], str]) -> None:
        """Change the contract, and increase its version."""
        file = self._contracts / f"{STREAM}.yaml"
        major, minor, patch = load_contract(self._contracts, STREAM).version.split(".")
        newer = f"version: {major}.{int(minor) + 1}.{patch}"
        write_whole(file, change(file.read_text()).replace(f"version: {major}.{minor}.{patch}", newer, 1).encode())

    @contextmanager
    def producing(self, every: float = 0.4) -> Iterator[None]:
        """Let a producer land batches from time to time within the context."""
        done = Event()

        def produce() -> None:
            while not done.wait(every):
                self.land(1)

        producing = Thread(target=produce, name="producer")
        producing.start()
        try:
            yield
        finally:
            done.set()
            producing.join()

    def land_as_it_is(self, name: str, data: bytes, expected: Iterable[tuple[str, int]]) -> str:
        """Land a file with given content, whose units belong to these tables and positions."""
        self.landing.write_new(self.zone.uri_of(name), data)
        self.files.append(name)
        self.expected |= {(table, name, position) for table, position in expected}
        return name

    def land_again(self, name: str, again: str = "landed-again.json") -> str:
        """Land a file's bytes under another name."""
        expected = [(table, position) for table, source, position in self.expected if source == name]
        return self.land_as_it_is(again, self.landing.read(self.zone.uri_of(name)), expected)

    def expect(self, source: str, batch: Batch, kind: str | None = None) -> None:
        """Record the expected result of a batch; `kind` is a kind that the contract refuses."""
        self.files.append(source)
        if self.letters:
            self.letters.landed(source, batch, kind)
        if batch.corrupt:
            self.expected.add((TABLES.dead_letters, source, 0))
            return
        for position, record in enumerate(batch.records):
            table = TABLES.dead_letters if record.reasons else TABLES.bronze
            self.expected.add((table, source, position))

    def _put(self, batch: Batch) -> str:
        """Land a batch; return its ``_source``."""
        self.landing.write_new(self.zone.uri_of(batch.name), batch.data)
        return batch.name

    def locked(self, seconds: float = 10) -> str | None:
        """Return the name of a database in the folder that stays locked for some seconds, if there is one."""
        for file in sorted(self.folder.glob("*.db")):
            with closing(sqlite3.connect(file, isolation_level=None, timeout=seconds)) as database:
                try:
                    database.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError:
                    return file.name
        return None

    def accounted(self) -> int:
        """Return the number of rows in the ledger, 0 if it is missing. Reads no data file."""
        catalog = open_catalog(self.settings)
        if not catalog.table_exists(TABLES.ledger):
            return 0
        snapshot = catalog.load_table(TABLES.ledger).current_snapshot()
        return int((snapshot.summary or {})["total-records"] or 0) if snapshot else 0

    def drained(self) -> bool:
        """Return whether the ledger, silver and gold have everything that landed."""
        return self.accounted() >= len(self.files) and self._has_all() and self._followed()

    def _has_all(self) -> bool:
        ledger = open_catalog(self.settings).load_table(TABLES.ledger).scan(selected_fields=("source",)).to_arrow()
        return set(self.files) <= set(ledger["source"].to_pylist())

    def _followed(self) -> bool:
        """Return whether silver and gold, if they are filled, have taken all of bronze."""
        catalog = open_catalog(self.settings)
        end = self.marker(TABLES.ledger, bronze_query(STREAM))["micro_batch_id"] + 1
        for before, table, query in (
            (TABLES.ledger, SILVER.kept, silver_query(STREAM)),
            (SILVER.kept, GOLD, gold_query(PRODUCT)),
        ):
            if catalog.table_exists(table):
                marker = self.marker(table, query)
                # A layer does not follow a layer that was replaced, even if the numbers match.
                if int(marker.get("end", -1)) != end or marker["checkpoint_id"] != _uuid(catalog.load_table(before)):
                    return False
        return True

    def marker(self, table: str, query: str) -> dict[str, Any]:
        """Return the newest marker of a query in a table, or an empty one."""
        text = open_catalog(self.settings).load_table(table).properties.get(MARKER + query)
        found: dict[str, Any] = json.loads(text)["marker"] if text else {}
        return found

    def count(self) -> Count:
        """Compare the tables with the landed data."""
        found: Counter[Unit] = Counter()
        catalog = open_catalog(self.settings)
        for table in (TABLES.bronze, TABLES.dead_letters):
            rows = catalog.load_table(table).scan(selected_fields=(SOURCE, POSITION)).to_arrow()
            sources, positions = rows[SOURCE].to_pylist(), rows[POSITION].to_pylist()
            found.update((table, source, position) for source, position in zip(sources, positions, strict=True))
        expected, tried = Counter(self.expected), Count(0, 0)
        if self.letters:
            expected.update({(TABLES.bronze, *place): count for place, count in self.letters.bronze.items()})
            expected.update({(TABLES.dead_letters, *place): count for place, count in self.letters.left.items()})
            tried = self._count_attempts(self.letters.tried)
        layers = self._count_layers() if catalog.table_exists(GOLD) else Count(0, 0)
        return Count(
            lost=(expected - found).total() + layers.lost + tried.lost,
            doubled=(found - expected).total() + layers.doubled + tried.doubled,
        )

    def _count_attempts(self, expected: Counter[Tried]) -> Count:
        """Compare the attempts with the expected replays."""
        if not open_catalog(self.settings).table_exists(TABLES.attempts):
            return Count(expected.total(), 0)
        names = (SOURCE, POSITION, LETTER, ATTEMPT, OUTCOME)
        found = Counter(zip(*(self.column(TABLES.attempts, name) for name in names), strict=True))
        return Count((expected - found).total(), (found - expected).total())

    def _count_layers(self) -> Count:
        """Compare silver's keys and decided rows with bronze, and the counts of gold with silver."""
        bronze, kept = self.column(TABLES.bronze, _KEY), self.column(SILVER.kept, _KEY)
        decided = Counter(
            place
            for table in (SILVER.kept, SILVER.conflicts, SILVER.late)
            for place in zip(self.column(table, SOURCE), self.column(table, POSITION), strict=True)
        )
        duplicates = sum(self.column(SILVER.ledger, "duplicates"))
        # Nothing is late here: silver has each key of bronze once, and a row of bronze is in one table, or a duplicate.
        undecided = len(bronze) - decided.total() - duplicates
        booked = sum(self.column(SILVER.ledger, "bronze")) - len(bronze)
        uncounted = len(kept) - sum(self.column(GOLD, "event_count"))
        lost = len(set(bronze) - set(kept)) + max(undecided, -booked, 0) + max(uncounted, 0)
        twice = max(len(kept) - len(set(kept)), decided.total() - len(decided), -undecided, booked)
        return Count(lost, twice + max(-uncounted, 0))

    def column(self, table: str, name: str) -> list[Any]:
        """Return the values of a column of a table."""
        scan = open_catalog(self.settings).load_table(table).scan(selected_fields=(name,))
        column: list[Any] = scan.to_arrow()[name].to_pylist()
        return column

    def verify(self) -> Verified:
        """Run ``reader verify`` as a process."""
        done = subprocess.run(
            [sys.executable, "-m", "reader", "verify", STREAM, "--format", "json"],
            env=self.environment(self.settings.s3),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        report = json.loads(done.stdout) if done.returncode in (0, 1) else {"streams": []}
        return Verified(done.returncode, report, done.stderr.strip())

    def unfinished(self) -> set[str]:
        """Return the sources in bronze that the ledger lacks."""
        catalog = open_catalog(self.settings)
        bronze = catalog.load_table(TABLES.bronze).scan(selected_fields=(SOURCE,)).to_arrow()
        ledger = catalog.load_table(TABLES.ledger).scan(selected_fields=("source",)).to_arrow()
        return set(bronze[SOURCE].to_pylist()) - set(ledger["source"].to_pylist())

    def overwrite(self, name: str, data: bytes) -> None:
        """Overwrite a landed file. Bronze keeps its rows; dead letters of the file are not expected any more."""
        uri = self.zone.uri_of(name)
        if uri.startswith("s3://"):
            bucket, _, key = uri.removeprefix("s3://").partition("/")
            s3_client(self.settings.s3).put_object(Bucket=bucket, Key=key, Body=data)
        else:
            local_path(uri).write_bytes(data)
        self.expected = {unit for unit in self.expected if unit[:2] != (TABLES.dead_letters, name)}

    def lose_checkpoint(self) -> None:
        """Remove the checkpoints."""
        uri = self.settings.state.checkpoints
        if uri.startswith("file://"):
            shutil.rmtree(local_path(uri))
            return
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        client = s3_client(self.settings.s3)
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for found in page.get("Contents", ()):
                client.delete_object(Bucket=bucket, Key=found["Key"])

    @property
    def index(self) -> Path:
        """The key index of the strategy `state`."""
        return Path(self.settings.silver.index) / STREAM

    def lose_landing_log(self) -> None:
        """Remove the landing log's database, or empty it."""
        if self.settings.state.database.startswith("postgresql://"):
            with psycopg.connect(self.settings.state.database, autocommit=True) as connection:
                connection.execute("DROP SCHEMA public CASCADE")
                connection.execute("CREATE SCHEMA public")
        for file in self.folder.glob("landing-log.db*"):
            file.unlink()

    def table_location(self) -> str:
        """Return the location of bronze's metadata, which changes with each commit."""
        return open_catalog(self.settings).load_table(TABLES.bronze).metadata_location

    def _land_in(self, settings: Settings) -> None:
        self.zone = landing_zone(settings, STREAM)
        self.landing = self.zone.storage

    def _make(self, seed: int) -> Iterator[Batch]:
        plan = BatchPlan(
            seed=seed, users=50, batch_size=_RECORDS, evolve_after=0, style=JsonStyle.COMPACT, chances=_CHANCES
        )
        start = datetime(2026, 11, 21, tzinfo=UTC)
        contract = load_contract(self.settings.contracts, STREAM)
        return make_batches(plan, contract, (start + timedelta(seconds=index) for index in count()))


def _uuid(table: "Table") -> str:
    return str(table.metadata.table_uuid)


def _contracts(folder: Path, strategy: SilverStrategy) -> Path:
    """Copy the shipped contracts, with a strategy for the stream; return the folder."""
    shutil.copytree(ROOT / "contracts", folder)
    file = folder / f"{STREAM}.yaml"
    custom = f"customProperties:\n  - property: silverStrategy\n    value: {strategy}\n"
    file.write_text(file.read_text().replace("customProperties:\n", custom, 1))
    return folder
