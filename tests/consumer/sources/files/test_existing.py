"""A bucket or folder of another owner: its location, the beginning of a stream, and the choice of files."""

import gzip
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.consumer.direct import drain_directly
from tests.consumer.lake import SessionOf, rows
from tests.consumer.replays import STREAM, batch, order, verify, write_contract
from tests.lakes import changed
from tests.servers import Minio
from typer.testing import CliRunner

from consumer.monitoring import status
from consumer.removal.retain_files import NotOursError, retain
from consumer.scope import with_landing
from lakeproof.catalog import open_catalog
from lakeproof.cli import app as lakeproof
from lakeproof.errors import UnavailableError, UsageError
from lakeproof.landing.selection import Ignored
from lakeproof.landing.zone import GivenBy, landing_zone
from lakeproof.settings import Settings
from lakeproof.storage.s3 import s3_client
from reader.connect import connect

pytestmark = pytest.mark.spark

DAY = timedelta(days=1)
OLD = datetime(2026, 1, 1, tzinfo=UTC)
Run: TypeAlias = Callable[..., None]


@pytest.fixture
def settings(lake_settings: Settings, tmp_path: Path) -> Settings:
    changes = {"LAKE_CONTRACTS": tmp_path / "contracts", "LAKE_GOLD": tmp_path / "gold", "LAKE_SETTLE_SECONDS": 0}
    settings = changed(lake_settings, **changes)
    write_contract(settings, right=True)
    return settings


@pytest.fixture
def elsewhere(settings: Settings, minio: Minio) -> Settings:
    """Return a lake in a folder, whose streams land in buckets of another account."""
    own = {name.replace("AWS_", "LAKE_SOURCE_"): value for name, value in minio.environment().items()}
    return changed(settings, **own)


@pytest.fixture
def run(session_of: SessionOf) -> Run:
    """Return a function that acts like ``consumer run --available-now`` with ``--source`` and ``--starting-files``."""

    def run(settings: Settings, source: str | None = None, start: str | None = None, stream: str = STREAM) -> None:
        lake = with_landing(settings, None, source, start, [stream])
        drain_directly(session_of(lake), lake, stream)

    return run


def sources(settings: Settings, stream: str = STREAM) -> set[str]:
    """Return the names of the files that bronze has rows of."""
    return {row["_source"] for row in rows(settings, f"bronze.{stream}")}


def say(settings: Settings, servers: str = "", landing: str = "", version: str = "2.0.0") -> None:
    """Write a contract with the given `servers` and choice of landed files."""
    write_contract(settings, right=True)
    path = settings.contracts / f"{STREAM}.yaml"
    head = f"servers:\n  - {servers}\nschema:" if servers else "schema:"
    text = path.read_text().replace("schema:", head, 1).replace("version: 2.0.0", f"version: {version}")
    custom = f"customProperties:\n  - {{property: landing, value: {landing}}}\n" if landing else "customProperties:\n"
    path.write_text(text.replace("customProperties:\n", custom, 1))


def put(folder: Path, name: str, *orders: int, at: datetime = OLD) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(batch(*map(order, orders)))
    os.utime(path, (at.timestamp(), at.timestamp()))


def landed_facts(settings: Settings) -> dict[Ignored, int]:
    """Check that verify finds nothing wrong; return the number of files that it ignores, by reason."""
    found = verify(settings)
    assert (found.clean, found.landed.waiting) == (True, 0), (found.off, found.landed)
    return {why: count for why, count in found.landed.facts["ignored_files"].items() if count}


@pytest.mark.s3
def test_a_bucket_of_somebody_else_is_read_as_it_is(
    elsewhere: Settings, run: Run, bucket: str, minio: Minio, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = s3_client(minio.settings())
    kept = {
        "exports/a b+c%.json": batch(order(1)),
        "exports/ü/日本 'x' & <y>.ndjson.gz": gzip.compress(order(2) + b"\n" + order(3)),
        "exports/double .json": batch(order(4)),
        "exports/no-suffix": batch(order(5)),
        "exports/dt=2026-11-25/part=1/~!@$^*().json": batch(order(6)),
        "exports/empty.json": b"",
    }
    left_out = {
        "exports/": b"",
        "exports/folder/": b"",
        "exports/data.json.zst": b"(\xb5/\xfd",
        "exports/T.PARQUET": b"PAR1",
        "exports/_SUCCESS": b"",
        "exports-2/other.json": batch(order(7)),
        "other.json": batch(order(8)),
    }
    for key, value in (kept | left_out).items():
        client.put_object(Bucket=bucket, Key=key, Body=value)
    before = {item["Key"]: item["ETag"] for item in client.list_objects_v2(Bucket=bucket)["Contents"]}
    run(elsewhere, f"s3://{bucket}/exports/")
    names = {key.removeprefix("exports/").replace("%", "%25") for key in kept}
    assert sources(elsewhere) == names - {"empty.json"}
    assert len(rows(elsewhere, f"bronze.{STREAM}")) == 6
    assert [row["_source"] for row in rows(elsewhere, f"dead_letters.{STREAM}")] == ["empty.json"]
    assert landed_facts(elsewhere) == {Ignored.FORMAT: 2, Ignored.HIDDEN: 1}
    with connect(elsewhere) as session:
        assert {name for (name,) in session.fetch(f"SELECT _source FROM landing.{STREAM}")} >= names

    # The ledger records the address: later runs need no option, and a different address is refused.
    zone = landing_zone(elsewhere, STREAM)
    assert (zone.root, zone.given_by, zone.is_own) == (f"s3://{bucket}/exports", GivenBy.OPTION, True)
    client.put_object(Bucket=bucket, Key="exports/later.json", Body=batch(order(9)))
    found = status.status(elsewhere, [STREAM])[0]
    assert (found.lag, found.unit) == (1, "files")
    run(elsewhere)
    run(elsewhere, f"s3://{bucket}//exports")
    assert "later.json" in sources(elsewhere)
    with pytest.raises(UsageError, match=rf"was s3://{bucket}/exports, but --source is now s3://{bucket}/exports-2"):
        run(elsewhere, f"s3://{bucket}/exports-2")

    # Nothing was written to the bucket, and nothing is removed unless the operator asks for it.
    after = {item["Key"]: item["ETag"] for item in client.list_objects_v2(Bucket=bucket)["Contents"]}
    assert after.keys() - before.keys() == {"exports/later.json"}
    assert before.items() <= after.items()
    with pytest.raises(NotOursError, match="may be somebody else's"):
        retain(elsewhere, STREAM, timedelta())
    time.sleep(1.1)  # times of objects are whole seconds
    assert retain(elsewhere, STREAM, timedelta(), in_source=True).removed == 7
    assert verify(elsewhere).clean

    # Without the keys of the bucket, verify cannot check anything.
    with pytest.raises(UnavailableError):
        list(landing_zone(changed(elsewhere, LAKE_SOURCE_SECRET_ACCESS_KEY="wrong"), STREAM).list())


@pytest.mark.s3
def test_a_bucket_is_read_from_now_on(elsewhere: Settings, run: Run, bucket: str, minio: Minio) -> None:
    client = s3_client(minio.settings())
    say(elsewhere, f"{{server: landing, type: s3, location: 's3://{bucket}', endpointUrl: '{minio.endpoint_url}'}}")
    elsewhere = changed(elsewhere, LAKE_SOURCE_ENDPOINT_URL="http://127.0.0.1:1")  # the contract takes precedence
    client.put_object(Bucket=bucket, Key="m.json", Body=batch(order(1)))
    time.sleep(1.1)
    run(elsewhere, start="latest")
    assert sources(elsewhere) == set()
    for key in ("a.json", "z.json"):
        client.put_object(Bucket=bucket, Key=key, Body=batch(order(2)))
    run(elsewhere)  # the beginning is recorded
    assert sources(elsewhere) == {"a.json", "z.json"}
    assert landed_facts(elsewhere) == {Ignored.EARLIER: 1}
    assert landing_zone(elsewhere, STREAM).given_by is GivenBy.CONTRACT
    with connect(elsewhere) as session:
        assert session.count(f"landing.{STREAM}") == 3


@pytest.mark.all
def test_a_folder_is_read_from_a_time_on(settings: Settings, run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "some body" / "100%"
    put(folder, "old.json", 1, at=OLD - DAY)
    put(folder, "at.json", 2)
    put(folder, "new.json", 3, at=OLD + DAY)
    run(settings, str(folder), "2026-01-01T01:00:00+01:00")
    assert sources(settings) == {"at.json", "new.json"}
    assert landed_facts(settings) == {Ignored.EARLIER: 1}
    # A later run begins where the first one did, whatever its option says.
    put(folder, "older.json", 4, at=OLD - 2 * DAY)
    run(settings, start="earliest")
    assert sources(settings) == {"at.json", "new.json"}
    # A file that was written to since is no longer from before the beginning.
    put(folder, "old.json", 1, 5, at=OLD + DAY)
    run(settings)
    assert sources(settings) == {"at.json", "new.json", "old.json"}
    assert landed_facts(settings) == {Ignored.EARLIER: 1}
    assert sorted(path.name for path in folder.iterdir()) == ["at.json", "new.json", "old.json", "older.json"]


@pytest.mark.all
def test_globs_can_change_and_verify_agrees(settings: Settings, run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for number, name in enumerate(["a/1.json", "b/2.json", "b/3.bak", "c/4.json"]):
        put(folder, name, number)
    server = f"{{server: landing, type: local, path: {folder}}}"
    say(settings, server, "{include: ['*.json'], exclude: [c/**]}")
    run(settings)
    assert sources(settings) == {"a/1.json", "b/2.json"}
    assert landed_facts(settings) == {Ignored.EXCLUDED: 2}
    # Files that were read stay, and are verified; newly included files are read, however old they are.
    say(settings, server, "{include: ['*.json', '*.bak'], exclude: [b/2.json]}")
    run(settings)
    assert sources(settings) == {"a/1.json", "b/2.json", "b/3.bak", "c/4.json"}
    assert landed_facts(settings) == {}
    (folder / "b" / "2.json").write_bytes(b"[]")
    assert [(each.place, each.what) for each in verify(settings).off] == [("b/2.json", "changed")]
    # A file that the consumer has read is missed, though it is not included any more.
    for table, column in ((f"bronze.{STREAM}", "_source"), (f"ledger.{STREAM}", "source")):
        open_catalog(settings).load_table(table).delete(f"{column} = 'b/2.json'")
    assert ("b/2.json", "lost") in [(each.place, each.what) for each in verify(settings).off]


@pytest.mark.all
def test_an_address_that_moves_is_noticed(settings: Settings, run: Run, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    put(one, "1.json", 1)
    run(settings, str(one))
    one.rename(other)
    with pytest.raises(UnavailableError, match="does not exist"):
        run(settings)
    with pytest.raises(UsageError) as refused:
        run(settings, str(other))
    assert f"lakeproof landing move {STREAM} --source {other.as_uri()}" in refused.value.hint
    environment = {"LAKE_HOME": str(settings.home), "LAKE_CONTRACTS": str(settings.contracts)}
    arguments = ["landing", "move", STREAM, "--source", str(other)]
    done = CliRunner().invoke(lakeproof, arguments, env=environment, catch_exceptions=False)
    assert "Found 1 of 1 files." in done.output
    put(other, "2.json", 2)
    run(settings)
    assert sources(settings) == {"1.json", "2.json"}
    assert landed_facts(settings) == {}
    # A different path in the contract does not change where files are read.
    say(settings, f"{{server: landing, type: local, path: {one}}}")
    assert landing_zone(settings, STREAM).root == other.as_uri()


def test_what_the_lake_writes_does_not_land(settings: Settings, run: Run, tmp_path: Path) -> None:
    inside = settings.home / "warehouse" / "bronze" / "files"
    inside.mkdir(parents=True)
    for folder in (tmp_path, settings.home, inside):
        with pytest.raises(UsageError, match="overlap: what the lake writes would land"):
            run(settings, str(folder))


@pytest.mark.s3
def test_an_address_that_is_wrong_is_not_recorded(elsewhere: Settings, run: Run, tmp_path: Path) -> None:
    put(tmp_path / "in", "1.json", 1)
    with pytest.raises(UsageError, match="/typo does not exist"):
        run(elsewhere, str(tmp_path / "typo"))
    with pytest.raises(UnavailableError, match="NoSuchBucket"):
        run(elsewhere, "s3://no-such-bucket/exports")
    run(elsewhere, str(tmp_path / "in"))
    assert sources(elsewhere) == {"1.json"}
