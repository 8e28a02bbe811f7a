"""The position in Spark's checkpoint, and whether a query may resume from it."""

import json
from pathlib import Path

import pytest

from lakeproof.checkpoint import Checkpoint, read_checkpoint, remove_checkpoint
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
