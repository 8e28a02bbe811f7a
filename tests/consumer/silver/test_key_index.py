"""The index of keys: no Spark."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.silver.key_index import KeyIndex, Progress
from consumer.silver.verdicts import COMPARED, IN_SILVER, Micros
from lakeproof.errors import LakeproofError

HOUR = 3_600_000_000
DAY = 24 * HOUR
Found = dict[str, tuple[int | None, int, bytes]]


def rows(found: dict[str, Micros | None], first: int = 0) -> pa.Table:
    """A row for each key, from one file, with positions from `first`."""
    content = [
        (key.encode(), 0, "a/ü.json", first + place, time, time, bytes([first % 256]) * 16)
        for place, (key, time) in enumerate(found.items())
    ]
    return pa.Table.from_pylist([dict(zip(COMPARED.names, row, strict=True)) for row in content], schema=COMPARED)


def find(index: KeyIndex, keys: list[str], oldest: Micros | None) -> Found:
    texts = [key.encode() for key in keys]
    found = index.find(pa.chunked_array([texts, texts], pa.binary()), oldest)
    assert found.schema == COMPARED
    assert set(found["_micro_batch_id"].to_pylist()) <= {IN_SILVER}
    assert set(found["_source"].to_pylist()) <= {"a/ü.json"}
    return {
        row["_key"].decode(): (row["_event_time"], row["_position"], row["_content_hash"])
        for row in found.to_pylist()
    }  # fmt: skip


def progress(end: int) -> Progress:
    return Progress("silver", "contract", end, end + 100)


TIMES = st.one_of(st.none(), st.integers(-3 * DAY, 12 * DAY), st.integers(300_000 * DAY, 300_001 * DAY))


@given(
    st.sampled_from([None, 0, HOUR, DAY]),
    st.lists(st.tuples(st.dictionaries(st.sampled_from("abcdef"), TIMES), st.integers(0, DAY)), max_size=8),
)
def test_it_has_what_was_added_until_the_horizon_has_passed(
    tmp_path_factory: pytest.TempPathFactory,
    horizon: Micros | None,
    steps: list[tuple[dict[str, Micros | None], int]],
) -> None:
    folder = tmp_path_factory.mktemp("index")
    index = KeyIndex(folder, horizon)
    expected: Found = {}
    watermark = 0
    oldest = None
    for number, (wanted, passed) in enumerate(steps):
        # As silver does: a key is kept again only if the horizon has passed the row that it was kept with.
        added = {key: time for key, time in wanted.items() if key not in expected}
        watermark += passed
        index.add(rows(added, number * 10), progress(number), watermark)
        oldest = None if horizon is None else watermark - horizon
        for place, (key, time) in enumerate(added.items()):
            expected[key] = (time, number * 10 + place, bytes([number * 10]) * 16)
        expected = {
            key: value
            for key, value in expected.items()
            if oldest is None or value[0] is None or value[0] >= oldest
        }  # fmt: skip
        if number % 3 == 2:
            index.close()
            index = KeyIndex(folder, horizon)
        assert find(index, list("abcdefg"), oldest) == expected
        assert index.progress == progress(number)
    index.close()


def test_what_the_horizon_has_passed_is_removed(tmp_path: Path) -> None:
    index = KeyIndex(tmp_path, DAY)
    index.add(rows({"a": 0, "no time": None, "far ahead": 999 * DAY}), progress(0), 0)
    index.add(rows({"b": DAY}), progress(1), 2 * DAY - 1)
    assert find(index, ["a"], None)
    index.add(rows({"c": 5 * DAY}), progress(2), 5 * DAY)
    assert find(index, ["a", "b", "c", "no time", "far ahead"], None).keys() == {"c", "no time", "far ahead"}
    index.close()


def test_it_can_be_cleared(tmp_path: Path) -> None:
    index = KeyIndex(tmp_path, None)
    index.add(rows({"a": 0}), progress(0), 0)
    index.clear()
    assert index.progress is None
    assert find(index, ["a"], None) == {}
    index.close()


def test_two_processes_cannot_have_it(tmp_path: Path) -> None:
    index = KeyIndex(tmp_path, None)
    with pytest.raises(LakeproofError, match="in use by another process"):
        KeyIndex(tmp_path, None)
    index.close()


def test_a_damaged_one_is_built_again(tmp_path: Path) -> None:
    index = KeyIndex(tmp_path, None)
    index.add(rows({"a": 0}), progress(0), 0)
    index.close()
    for manifest in tmp_path.glob("MANIFEST*"):
        manifest.write_bytes(b"damaged")
    index = KeyIndex(tmp_path, None)
    assert index.progress is None
    index.close()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LakeproofError, match="Cannot write") as refused:
        KeyIndex(tmp_path / "file" / "index", None)
    assert "LAKE_SILVER_INDEX" in refused.value.hint
