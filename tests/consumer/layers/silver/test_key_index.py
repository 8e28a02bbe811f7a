"""The key index, without Spark."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocksdict import Cache

from consumer.layers import buckets
from consumer.layers.buckets import InUseError, mended
from consumer.layers.silver.key_index import IndexPosition, KeyIndex
from consumer.layers.silver.verdicts import COMPARED, IN_SILVER, Micros
from lakeproof.errors import LakeproofError

HOUR = 3_600_000_000
DAY = 24 * HOUR
MICRO_BATCHES = 4
Found = dict[str, tuple[int | None, int, bytes]]


def rows(found: dict[str, Micros | None], first: int = 0) -> pa.Table:
    """Return a row for each key, all from one file, with positions from `first`."""
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


def progress(end: int) -> IndexPosition:
    return IndexPosition("silver", "contract", end, end + 100)


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
        # As in silver, a key is kept again only if the horizon has passed the row that was kept before.
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


def test_keys_that_the_horizon_has_passed_make_no_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, made = KeyIndex(tmp_path, HOUR), list[str]()
    handle = KeyIndex._handle
    monkeypatch.setattr(KeyIndex, "_handle", lambda self, name: made.append(name) or handle(self, name))
    index.add(rows({f"{hour}": hour * HOUR for hour in range(1000)}), progress(0), 999 * HOUR)
    assert made == ["998", "999"]
    assert find(index, ["997", "998", "999"], None).keys() == {"998", "999"}
    index.close()


def test_keys_of_local_times_are_removed_too(tmp_path: Path) -> None:
    index = KeyIndex(tmp_path, HOUR)
    for hour in range(30):
        index.add(rows({f"{hour}": (hour + 14) * HOUR}), progress(hour), hour * HOUR)
    left = find(index, [str(hour) for hour in range(30)], None)
    assert sorted(map(int, left)) == list(range(14, 30))
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
    index.add(rows({"a": 0}), progress(0), 0)
    with pytest.raises(InUseError, match="in use by another process"):
        KeyIndex(tmp_path, None)
    other = "import sys; from pathlib import Path; from consumer.layers.silver.key_index import KeyIndex\n"
    other += "KeyIndex(Path(sys.argv[1]), None)"
    ended = subprocess.run([sys.executable, "-c", other, tmp_path], capture_output=True, text=True, check=False)
    assert "InUseError" in ended.stderr
    assert find(index, ["a"], None)
    index.close()


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the index of a killed process: part of four micro-batches is in tables, the rest in logs."""
    monkeypatch.setattr(buckets, "_CACHE", Cache(1))  # cached blocks would hide the damage
    index = KeyIndex(tmp_path / "running", DAY)
    for number in range(MICRO_BATCHES):
        index.add(rows(of_micro_batch(number), number), progress(number + 1), DAY)
        if number == 0:
            for name in index.names:
                index._buckets[name].flush()
        if number == 1:
            index._database.flush()
    shutil.copytree(tmp_path / "running", tmp_path / "killed", ignore=shutil.ignore_patterns("LOG*", "OPTIONS*"))
    index.close()
    return tmp_path / "killed"


def of_micro_batch(number: int) -> dict[str, Micros | None]:
    return {f"{number} {place}": place * HOUR if place else None for place in range(30)}


def check_flipped(file: Path, place: int, bit: int) -> bool:
    """Return whether a flipped bit is noticed; check that no key is wrong or missing in either case."""
    content = bytearray(file.read_bytes())
    content[place] ^= 1 << bit
    file.write_bytes(content)
    index = KeyIndex(file.parent, DAY)

    def look_up() -> tuple[int, Found]:
        has = index.progress
        assert has is None or has == progress(has.end)
        return has.end if has else 0, find(index, wanted, None)

    wanted = [key for number in range(MICRO_BATCHES) for key in of_micro_batch(number)]
    cleared = []
    end, found = mended(look_up, lambda: cleared.append(index.clear()))
    assert found.keys() == {key for number in range(end) for key in of_micro_batch(number)}
    for number in range(end, MICRO_BATCHES):
        index.add(rows(of_micro_batch(number), number), progress(number + 1), DAY)
    assert look_up()[1].keys() == set(wanted)
    index.close()
    return end < MICRO_BATCHES


@pytest.mark.all
def test_a_flipped_bit_is_noticed_wherever_it_is(killed: Path, tmp_path: Path) -> None:
    chance = random.Random(0)
    files = [file for file in sorted(killed.iterdir()) if file.stat().st_size]
    assert {file.name.partition("-")[0] if "-" in file.name else file.suffix for file in files} >= {
        "MANIFEST",
        ".sst",
        ".log",
    }
    noticed = dict.fromkeys((".sst", ".log"), 0)
    for number, file in enumerate(files):
        size = file.stat().st_size
        for place in (10, *chance.sample(range(size), min(size, 3))):
            folder = tmp_path / f"{number}-{place}"
            shutil.copytree(killed, folder)
            shown = check_flipped(folder / file.name, place % size, chance.randrange(8))
            noticed[file.suffix] = noticed.get(file.suffix, 0) + shown
            shutil.rmtree(folder)
    assert min(noticed[".sst"], noticed[".log"]) > 3


@pytest.mark.parametrize("pattern", ["MANIFEST*", "*.log"])
def test_a_record_that_rocksdb_would_read_for_ever_is_damage(killed: Path, pattern: str) -> None:
    """The second record gets the type of a recycled log, unlike the first record."""
    file, starts = records(killed, pattern)
    assert file.read_bytes()[starts[1] + 6] == 1
    assert check_flipped(file, starts[1] + 6, 2)


@pytest.mark.parametrize("number", [-1, -2, -3])
def test_a_record_of_the_manifest_that_seems_to_be_longer_is_damage(killed: Path, number: int) -> None:
    """RocksDB would skip it with everything after it, and so ignore the tables that it names."""
    file, starts = records(killed, "MANIFEST*")
    assert check_flipped(file, starts[number] + 5, 6)


def records(folder: Path, pattern: str) -> tuple[Path, list[int]]:
    """Return the first RocksDB log that has several records, and the start of each record."""
    for file in sorted(folder.glob(pattern)):
        content, starts = file.read_bytes(), [0]
        while starts[-1] < len(content):
            starts.append(starts[-1] + 7 + int.from_bytes(content[starts[-1] + 4 : starts[-1] + 6], "little"))
        if len(starts) > 2:
            return file, starts[:-1]
    raise AssertionError(f"no {pattern} has several records")


@pytest.mark.parametrize("pattern", ["*.sst", "*.log", "MANIFEST*", "CURRENT"])
@pytest.mark.parametrize("how", ["gone", "empty", "cut", "zeroed"])
def test_a_file_that_lost_its_content_is_noticed(killed: Path, pattern: str, how: str) -> None:
    *_, file = sorted(killed.glob(pattern))
    content = file.read_bytes()
    left = {"empty": b"", "cut": content[: len(content) // 2], "zeroed": bytes(len(content))}
    file.unlink()
    if how in left:
        file.write_bytes(left[how] or b"\0")
        assert check_flipped(file, 0, 0)
    else:
        (killed / "other").write_bytes(b"\0")
        assert check_flipped(killed / "other", 0, 0)


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
