"""Checkpoints of modes in folders that are nested: none reads or removes the files of another one."""

from pathlib import Path

import pyarrow as pa
import pytest
from tests.selection import first_by_default

from consumer.modes.checkpoint import Checkpoint, Commit
from consumer.modes.plan import ModePlan
from lakeproof.errors import UnavailableError, UsageError
from lakeproof.kafka.modes import Mode, ModeName, mode_of
from lakeproof.kafka.offsets import Offsets
from lakeproof.settings import S3Settings, settings_of
from lakeproof.storage import open_storage
from lakeproof.storage.local import LocalStorage

START = Offsets("t")


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return (tmp_path / "with späce").as_uri()
    return f"s3://{request.getfixturevalue('bucket')}/checkpoints/a"


@pytest.fixture
def s3(request: pytest.FixtureRequest, root: str) -> S3Settings:
    return request.getfixturevalue("s3_settings") if root.startswith("s3") else settings_of({}).s3


@pytest.fixture
def mode(tmp_path: Path) -> Mode:
    return mode_of(ModeName.DEDUPE, settings_of({"LAKE_HOME": tmp_path, "LAKE_DEDUPE_KAFKA": "k"}))


def take(checkpoint: Checkpoint, number: int) -> Commit:
    """Take a micro-batch, with a file of the state."""
    name = f"keys-one_{number}_1_0.parquet"
    checkpoint.begin(ModePlan(number, START, START, (), None, 5))
    checkpoint.write_table(name, pa.table({"id": [b"x"]}))
    commit = Commit(number, "x", START, None, (name,))
    checkpoint.commit(commit)
    checkpoint.tidy(commit)
    return commit


@pytest.mark.parametrize("below", first_by_default(["second", "state"]))
def test_a_commit_leaves_the_files_of_a_checkpoint_below_it(root: str, s3: S3Settings, mode: Mode, below: str) -> None:
    """An older version did not refuse such folders."""
    inner, outer = Checkpoint(f"{root}/{below}", s3), Checkpoint(root, s3)
    inner.create(mode, "id", START)
    done = take(inner, 0)
    assert outer.newest() == (None, None)
    for number in range(23):
        took = take(outer, number)
    assert outer.newest() == (took, None)
    assert [commit.number for commit, _ in outer.commits()] == list(range(2, 23))
    assert inner.newest() == (done, None)
    assert inner.read_table(done.keys[0], pa.schema({"id": pa.binary()})).num_rows == 1
    names = open_storage(root, s3).names
    assert len(list(names(f"{root}/plans"))) == 21
    assert set(names(f"{root}/state")) - {"mode.json"} == set(took.keys)


def test_a_checkpoint_below_or_above_another_one_is_refused(root: str, s3: S3Settings, mode: Mode) -> None:
    Checkpoint(f"{root}/b", s3).create(mode, "id", START)
    for other, where in ((f"{root}/b/c/d", f"{root}/b"), (root, f"{root}/b")):
        checkpoint = Checkpoint(other, s3)
        assert checkpoint.identity() is None
        with pytest.raises(UsageError, match="nested") as caught:
            checkpoint.create(mode, "id", START)
        assert where in caught.value.message
        assert "Use a folder" in caught.value.hint
        assert checkpoint.identity() is None
    for other in (f"{root}/bc", f"{root}/c/b"):
        Checkpoint(other, s3).create(mode, "id", START)


def test_a_folder_of_a_checkpoint_may_be_a_link(tmp_path: Path, mode: Mode) -> None:
    """An operator moves the state to another disk."""
    folder, other = tmp_path / "checkpoint", tmp_path / "disk"
    folder.mkdir()
    for name in ("plans", "commits", "state"):
        (other / name).mkdir(parents=True)
        (folder / name).symlink_to(other / name)
    checkpoint = Checkpoint(folder.as_uri(), settings_of({}).s3)
    checkpoint.create(mode, "id", START)
    for number in range(2):
        done = take(checkpoint, number)
    assert checkpoint.newest() == (done, None)
    assert [file.name for file in (other / "state").iterdir()] == list(done.keys)


def test_a_key_may_be_for_the_checkpoint_alone(tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 then refuses to say whether there is a file above."""

    def refuse(_: LocalStorage, uri: str) -> None:
        raise UnavailableError(f"Cannot read the metadata of {uri}: Forbidden.", "")

    monkeypatch.setattr(LocalStorage, "stat", refuse)
    checkpoint = Checkpoint((tmp_path / "a/b").as_uri(), settings_of({}).s3)
    made = checkpoint.create(mode, "id", START)
    assert checkpoint.identity() == made
