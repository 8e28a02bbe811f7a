"""Lakes made without Spark: tables by PyIceberg, landed files by the project's own storage."""

import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from tests.lakes import variables
from tests.programs import forked
from tests.reader.lake import Append, Done, Run
from tests.selection import only_with_all

from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.settings import Settings, settings_of
from lakeproof.storage import open_storage
from lakeproof.storage.s3 import s3_client
from lakeproof.tables.schemas import ensure_tables
from reader import connect

CONTRACTS = Path(__file__).parents[2] / "contracts"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LANDED = {
    "a.json": b'[{"user_id": "u0"}]',
    "sub/folder/b c.json": b"{}",
    'it\'s "quoted".json': b"quotes",
    "é-😀.json": "é😀".encode(),
    "percent%20plus+hash#.json": b"percent",
    "not-utf8.json": b'{"a": "\xff"}',
    "nul.json": b"a\x00b",
    "empty.json": b"",
    "z.json.gz": b"\x1f\x8b\x08\x00 as it is",
}
DEAD_LETTERS = [
    (
        b'{"user_id": "\xff", "x": 1}',
        [("unknown_field", "$.x", "not in the contract"), ("invalid_utf8", "$", "byte 13")],
    ),
    (b'{"user_id": "\xc3\xa9"}', [("missing_field", "$.event_id", "required")]),
    (b'{"user_id": "a\\b"}', [("missing_field", "$.event_id", "required")]),
]


def environment(settings: Settings) -> dict[str, str]:
    """Return the variables for another process to read the same lake."""
    own = {"LAKE_HOME": settings.home, "LAKE_CONTRACTS": settings.contracts, "LAKE_LANDING": settings.landing.uri}
    own |= {"LAKE_WAREHOUSE": settings.catalog.warehouse_uri, "LAKE_CATALOG": settings.catalog.kind}
    if "LAKE_CATALOG_URI" in variables(settings):
        own["LAKE_CATALOG_URI"] = settings.catalog.uri
    s3 = settings.s3
    if s3.endpoint_url and s3.access_key_id and s3.secret_access_key:
        own |= {"AWS_ENDPOINT_URL": s3.endpoint_url, "AWS_ACCESS_KEY_ID": s3.access_key_id}
        own["AWS_SECRET_ACCESS_KEY"] = s3.secret_access_key.get_secret_value()
    return os.environ | {name: str(value) for name, value in own.items()} | {"HOME": str(settings.home)}


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Let DuckDB use one thread in sessions of this process: for small tables, more only cost time.

    The reader as a program, which many of these tests run, uses all.
    """
    original = connect.session_statements

    def statements(settings: Settings, endpoint: str) -> Iterator[str]:
        yield from original(settings, endpoint)
        yield "SET threads = 1"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connect, "session_statements", statements)
        yield


@pytest.fixture(scope="session")
def reader_environment() -> Callable[[Settings], dict[str, str]]:
    return environment


@pytest.fixture(scope="session")
def reader() -> Run:
    def run(settings: Settings, *arguments: str, text: str | None = None) -> Done:
        settings.home.mkdir(parents=True, exist_ok=True)
        return subprocess.run(
            [*forked("reader"), *arguments],
            env=environment(settings),
            cwd=settings.home,
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run


@pytest.fixture(scope="session")
def append() -> Append:
    """Append `count` events, starting with number `start`."""

    def append_events(settings: Settings, count: int, start: int = 0, table: str = "bronze.events") -> None:
        rows = [
            {
                "user_id": f"u{number}",
                "event_id": f"e{number}",
                "event_timestamp": NOON + timedelta(hours=number),
                "event_type": "purchase",
                "product_id": None,
                "properties": [("amount", "12.50"), ("currency", "EUR")],
                "_source": "file:///landing/a.json",
                "_position": number,
                "_micro_batch_id": start,
                "_landed_at": NOON,
                "_ingested_at": NOON,
                "_contract_version": "1.0.0",
            }
            for number in range(start, start + count)
        ]
        _append(settings, table, rows)

    return append_events


@pytest.fixture(scope="session")
def bury() -> Append:
    """Append dead letters: bytes, and reasons as (code, path, detail)."""

    def append_dead_letters(settings: Settings, letters: list[tuple[bytes, list[tuple[str, str, str]]]]) -> None:
        rows = [
            {
                "reasons": [dict(zip(("code", "path", "detail"), reason, strict=True)) for reason in reasons],
                "raw": raw,
                "_source": "file:///landing/a.json",
                "_position": number,
                "_micro_batch_id": 0,
                "_landed_at": NOON,
                "_ingested_at": NOON,
                "_contract_version": "1.0.0",
                "_attempt": 1,
            }
            for number, (raw, reasons) in enumerate(letters)
        ]
        _append(settings, "dead_letters.events", rows)

    return append_dead_letters


@pytest.fixture(scope="module")
def local_lake(tmp_path_factory: pytest.TempPathFactory, append: Append, bury: Append) -> Settings:
    """Three events, three dead letters and the files of LANDED, in local folders with an awkward name."""
    home = tmp_path_factory.mktemp("lake") / "it's [a] lake"
    settings = settings_of({"LAKE_HOME": home, "LAKE_CONTRACTS": CONTRACTS})
    _fill(settings, append, bury)
    return settings


@pytest.fixture(scope="module")
def s3_lake(minio: Any, tmp_path_factory: pytest.TempPathFactory, append: Append, bury: Append) -> Settings:
    """The same on MinIO; the catalog stays local."""
    bucket = f"reader-{uuid.uuid4().hex[:12]}"
    s3_client(minio.settings()).create_bucket(Bucket=bucket)
    settings = settings_of(
        {
            "LAKE_HOME": tmp_path_factory.mktemp("s3-lake"),
            "LAKE_LANDING": f"s3://{bucket}/landing",
            "LAKE_WAREHOUSE": f"s3://{bucket}/warehouse",
            "LAKE_CHECKPOINTS": f"s3://{bucket}/checkpoints",
            "LAKE_CONTRACTS": CONTRACTS,
        }
    ).model_copy(update={"s3": minio.settings()})
    _fill(settings, append, bury)
    return settings


@pytest.fixture(params=["local_lake", only_with_all("s3_lake", marks=[pytest.mark.s3])])
def lake(request: pytest.FixtureRequest) -> Settings:
    """The same lake, on local folders and on MinIO."""
    settings: Settings = request.getfixturevalue(request.param)
    return settings


@pytest.fixture(scope="session")
def landed() -> dict[str, bytes]:
    return LANDED


def _fill(settings: Settings, append: Append, bury: Append) -> None:
    ensure_tables(open_catalog(settings), load_contract(settings.contracts, "events"))
    append(settings, 3)
    bury(settings, DEAD_LETTERS)
    storage = open_storage(settings.landing.uri, settings.s3)
    for name, data in LANDED.items():
        written = quote(name) if settings.landing.uri.startswith("file://") else name
        storage.write_new(f"{settings.landing.uri}/events/{written}", data)


def _append(settings: Settings, name: str, rows: list[dict[str, Any]]) -> None:
    table = open_catalog(settings).load_table(name)
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))


@pytest.fixture(scope="session")
def spark_jars() -> Path:
    """Folder with Spark's jars."""
    return CONTRACTS.parent / "target" / "jars" / "spark"
