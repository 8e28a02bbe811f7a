"""The position in a checkpoint, and whether a query may resume from it; micro-batches are recorded as by Spark."""

import json
from pathlib import Path

import pytest

from lakeproof.checkpoint import Checkpoint, CheckpointWriter, landing_position, read_checkpoint, remove_checkpoint
from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings
from lakeproof.state.landing_log import Position
from lakeproof.storage import open_storage

QUERY = "bronze-events"


def at(seq: int, chain: str = "c") -> Position:
    return Position(seq, chain)


def write(settings: Settings, offsets: dict[int, int], commits: list[int]) -> None:
    root = f"{settings.state.checkpoints}/{QUERY}"
    storage = open_storage(root, settings.s3)
    for number, seq in offsets.items():
        offset = json.dumps({"seq": seq, "chain": "c", "contract": "d"})
        storage.write_new(f"{root}/offsets/{number}", f"v1\n{{}}\n{offset}".encode())
        storage.write_new(f"{root}/offsets/.{number}.crc", b"crc")
    for number in commits:
        storage.write_new(f"{root}/commits/{number}", b"v1\n{}")


@pytest.fixture(params=["lake_settings", pytest.param("s3_lake_settings", marks=pytest.mark.s3)])
def settings(request: pytest.FixtureRequest) -> Settings:
    found: Settings = request.getfixturevalue(request.param)
    return found


def test_there_is_none_before_the_first_micro_batch(settings: Settings) -> None:
    assert read_checkpoint(settings, QUERY) is None
    assert not remove_checkpoint(settings, QUERY)


def test_the_newest_micro_batch_counts(settings: Settings) -> None:
    write(settings, {9: 90, 10: 100}, [9])
    assert read_checkpoint(settings, QUERY) == Checkpoint(at(90), at(100), committed=False)
    write(settings, {11: 110}, [10, 11])
    assert read_checkpoint(settings, QUERY) == Checkpoint(at(100), at(110), committed=True)


def test_removed_it_is_gone(settings: Settings) -> None:
    write(settings, {0: 3}, [])
    assert read_checkpoint(settings, QUERY) == Checkpoint(None, at(3), committed=False)
    assert remove_checkpoint(settings, QUERY)
    assert read_checkpoint(settings, QUERY) is None


def test_one_of_another_program_is_refused(lake_settings: Settings) -> None:
    folder = Path(lake_settings.state.checkpoints.removeprefix("file://")) / QUERY / "offsets"
    folder.mkdir(parents=True)
    (folder / "0").write_text('v1\n{}\n{"log": "x", "seq": 3, "contract": "d"}')
    with pytest.raises(LakeproofError, match="Cannot resume from the checkpoint"):
        read_checkpoint(lake_settings, QUERY)


@pytest.mark.parametrize(
    ("checkpoint", "accounted", "fits"),
    [
        (Checkpoint(at(1), at(2), committed=True), at(2), True),
        (Checkpoint(at(1), at(2), committed=True), at(2, "other"), False),
        (Checkpoint(at(1), at(2), committed=True), at(1), False),  # the catalog is older
        (Checkpoint(at(1), at(2), committed=True), at(3), False),  # the checkpoint is older
        (Checkpoint(at(1), at(2), committed=False), at(1), True),  # nothing was appended
        (Checkpoint(at(1), at(2), committed=False), at(2), True),  # everything was appended
        (Checkpoint(at(1), at(2), committed=False), at(3), False),
        (Checkpoint(None, at(2), committed=False), at(0), True),  # the first micro-batch of a checkpoint
    ],
)
def test_a_query_goes_on_only_where_the_tables_are(checkpoint: Checkpoint, accounted: Position, fits: bool) -> None:
    assert checkpoint.fits(accounted) is fits


def offset(seq: int) -> str:
    return json.dumps({"seq": seq, "chain": "c", "contract": "d"})


def writer(settings: Settings) -> CheckpointWriter:
    return CheckpointWriter(settings, QUERY, landing_position)


def begin_second(settings: Settings) -> None:
    """Let a writer record a micro-batch, and begin a second one."""
    first = writer(settings)
    first.begin(offset(0), offset(10))
    first.commit()
    first.begin(offset(10), offset(20))


def numbers(settings: Settings, folder: str) -> list[int]:
    root = f"{settings.state.checkpoints}/{QUERY}"
    paths = [file.uri.split("/") for file in open_storage(root, settings.s3).list()]
    return sorted(int(path[-1]) for path in paths if path[-2] == folder)


def test_each_micro_batch_is_recorded_before_it_begins_and_once_it_is_done(settings: Settings) -> None:
    running = writer(settings)
    assert running.begin(offset(0), offset(10)) == 0
    assert read_checkpoint(settings, QUERY) == Checkpoint(None, at(10), committed=False)
    running.commit()
    assert read_checkpoint(settings, QUERY) == Checkpoint(None, at(10), committed=True)
    assert running.begin(offset(10), offset(20)) == 1
    running.commit()
    again = writer(settings)
    assert again.id == running.id
    assert again.begin(offset(20), offset(30)) == 2
    assert read_checkpoint(settings, QUERY) == Checkpoint(at(20), at(30), committed=False)


def test_a_micro_batch_that_was_only_begun_is_replaced(settings: Settings) -> None:
    begin_second(settings)
    assert writer(settings).begin(offset(10), offset(15)) == 1
    assert read_checkpoint(settings, QUERY) == Checkpoint(at(10), at(15), committed=False)


def test_a_micro_batch_of_which_only_the_commit_was_missing_is_committed(settings: Settings) -> None:
    begin_second(settings)
    assert writer(settings).begin(offset(20), offset(30)) == 2
    assert numbers(settings, "commits") == [0, 1]
    assert read_checkpoint(settings, QUERY) == Checkpoint(at(20), at(30), committed=False)


def test_a_writer_that_was_taken_over_replaces_nothing(settings: Settings) -> None:
    suspended = writer(settings)
    suspended.begin(offset(0), offset(10))
    suspended.commit()
    other = writer(settings)
    other.begin(offset(10), offset(30))
    with pytest.raises(LakeproofError, match="has a micro-batch 1 already"):
        suspended.begin(offset(10), offset(20))
    assert read_checkpoint(settings, QUERY) == Checkpoint(at(10), at(30), committed=False)


def test_only_the_newest_micro_batches_stay(lake_settings: Settings) -> None:
    running = writer(lake_settings)
    for number in range(201):
        assert running.begin(offset(number), offset(number + 1)) == number
        running.commit()
    assert numbers(lake_settings, "offsets") == numbers(lake_settings, "commits") == list(range(101, 201))


def test_a_damaged_id_is_refused(lake_settings: Settings) -> None:
    root = f"{lake_settings.state.checkpoints}/{QUERY}"
    open_storage(root, lake_settings.s3).write_new(f"{root}/metadata", b"{")
    with pytest.raises(LakeproofError, match=r"Cannot resume from the checkpoint(?s:.*)consumer reset"):
        _ = writer(lake_settings).id
