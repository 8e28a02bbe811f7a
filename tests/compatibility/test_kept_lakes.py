"""Lakes written by earlier versions: this version continues them, without losses or duplicates."""

import json
import subprocess
import tarfile
from pathlib import Path

import pytest
from tests.compatibility.make_lake import BUCKET, environment
from tests.programs import forked
from tests.servers import Minio

from lakeproof.storage.s3 import s3_client

pytestmark = [pytest.mark.spark, pytest.mark.s3]

FOLDER = Path(__file__).parent / "lakes"
WITHOUT_HASHES, THIS = FOLDER / "0.1.tar.gz", FOLDER / "0.2.tar.gz"


@pytest.mark.all
@pytest.mark.parametrize(
    "archive",
    [WITHOUT_HASHES, pytest.param(THIS, marks=pytest.mark.long)],  # all other tests use this version
    ids=lambda path: path.name,
)
def test_a_kept_lake_goes_on(archive: Path, minio: Minio, tmp_path: Path) -> None:
    home = tmp_path / "lake"
    home.mkdir()
    client = s3_client(minio.settings())
    client.create_bucket(Bucket=BUCKET)
    try:
        with tarfile.open(archive) as kept:
            for member in kept.getmembers():
                content = kept.extractfile(member)
                assert content
                if member.name.startswith("objects/"):
                    client.put_object(Bucket=BUCKET, Key=member.name.removeprefix("objects/"), Body=content.read())
                else:
                    (home / member.name).write_bytes(content.read())
        variables = environment(home, minio.environment())

        def run(*command: str) -> str:
            done = subprocess.run(
                [*forked(command[0]), *command[1:]],
                cwd=tmp_path,
                env=variables,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        def count(table: str) -> int:
            return int(run("reader", "sql", f"select count(*) from {table}.events", "--format", "csv").splitlines()[1])

        before = {table: count(table) for table in ("bronze", "dead_letters", "ledger")}
        assert before["ledger"] == 8
        tried = json.loads(run("lakeproof", "contract", "try", "events", "--all", "--format", "json"))
        assert {table: tried[table]["judged"] for table in ("bronze", "dead_letters")} == {
            table: before[table] for table in ("bronze", "dead_letters")
        }
        assert f"{before['dead_letters']:,}" in run("reader", "summary", "events")
        run("lakeproof", "contract", "apply", "events")
        run("consumer", "run", "events", "--available-now")
        run("consumer", "run", "events", "--available-now")
        after = {table: count(table) for table in before}
        assert after["ledger"] == 12
        assert all(after[table] > before[table] for table in before)
        hashes = "select count(bronze_hash), count(dead_letters_hash) from ledger.events"
        # An earlier version recorded no hashes: only new files have them.
        hashed = "4,4" if archive == WITHOUT_HASHES else "12,12"
        assert run("reader", "sql", hashes, "--format", "csv").splitlines()[1] == hashed
        assert "Clean: each landed unit is in exactly one table, once." in run("reader", "verify")
    finally:
        for each in client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
            client.delete_object(Bucket=BUCKET, Key=each["Key"])
        client.delete_bucket(Bucket=BUCKET)


def test_there_is_a_lake_of_each_version() -> None:
    assert sorted(FOLDER.iterdir()) == [WITHOUT_HASHES, THIS]
