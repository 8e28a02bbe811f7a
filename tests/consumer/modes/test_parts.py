"""Parts of a micro-batch that need neither Spark nor Kafka: plans, ids, windows, files."""

from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.modes.checkpoint import Checkpoint, Commit, pinned
from consumer.modes.kept import KeyFile, Keys, Progress, decide, follow, read_keys, write_keys
from consumer.modes.plan import ModePlan, next_end, tasks_between
from consumer.modes.sinks import KEPT, Folder
from consumer.modes.tasks import Mask, Piece, Work, write_kept
from consumer.modes.windows import AMOUNT, OPEN, as_final, merged, split_final, touched, windows_of
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.kafka.modes import ModeName, mode_of
from lakeproof.kafka.offsets import Offsets
from lakeproof.kafka.topic import Extent
from lakeproof.settings import settings_of

S3 = settings_of({}).s3
HOUR = 3_600_000_000
AMOUNTS = st.decimals(-999, 999, places=6)
EVENTS = st.tuples(st.sampled_from("abc"), st.integers(-50, 200), AMOUNTS)


@given(
    start=st.dictionaries(st.integers(0, 3), st.integers(0, 50_000)),
    left=st.dictionaries(st.integers(0, 3), st.integers(0, 200_000)),
    most=st.integers(1, 300_000),
    pieces=st.integers(1, 8),
)
def test_a_plan_takes_each_offset_once_in_order(
    start: dict[int, int], left: dict[int, int], most: int, pieces: int
) -> None:
    begin = Offsets.of("t", start)
    extents = {partition: Extent(0, begin.next(partition) + count) for partition, count in left.items()}
    end = next_end(begin, extents, most)
    tasks = tasks_between(begin, end, pieces)
    plan = ModePlan(1, begin, end, tasks, None, 5)
    assert ModePlan.from_json(plan.as_json()) == plan
    parts = [part for task in tasks for part in task]
    assert parts == sorted(parts, key=lambda part: (part.partition, part.start))
    total = sum(part.size for part in parts)
    assert min(most, sum(left.values())) <= total <= most + 4
    for partition, count in left.items():
        own = [part for part in parts if part.partition == partition]
        assert sum(part.size for part in own) <= count
        at = begin.next(partition)
        for part in own:
            assert part.start == at
            at = part.end
        assert at == end.next(partition) or not own
    assert len(tasks) <= pieces + 1
    assert total == 0 or all(task for task in tasks)


@given(batches=st.lists(st.lists(st.sampled_from(["a", "b", "é", "\0"]), max_size=6), max_size=4))
def test_the_first_event_with_an_id_is_kept(batches: list[list[str]], tmp_path_factory: pytest.TempPathFactory) -> None:
    keys = Keys(tmp_path_factory.mktemp("keys"), HOUR)
    seen: set[str] = set()
    for number, ids in enumerate(batches):
        kept = decide(pa.array(ids, pa.string()), keys, None)
        for index, each in enumerate(ids):
            assert kept[index] == (each not in seen)
            seen.add(each)
        keys.add([(each.encode(), 0) for each in ids], Progress(number, "x"), None)
    keys.close()


def test_an_id_counts_as_long_as_its_time_does(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys", HOUR)
    keys.add([(b"a", 5 * HOUR), (b"far ahead", 500 * HOUR)], Progress(0, "x"), 4 * HOUR)
    assert keys.known([b"a", b"b", b"far ahead"], 5 * HOUR) == [True, False, True]
    assert keys.known([b"a"], 5 * HOUR + 1) == [False]
    keys.add([(b"old", 6 * HOUR)], Progress(1, "y"), 20 * HOUR)  # removes older ids
    assert keys.known([b"a", b"old", b"far ahead"], None) == [False, False, True]
    keys.close()
    again = Keys(tmp_path / "keys", HOUR)
    assert (again.progress, again.known([b"far ahead"], None)) == (Progress(1, "y"), [True])
    with pytest.raises(LakeproofError, match="in use by another process"):
        Keys(tmp_path / "keys", HOUR)


def test_files_of_ids_are_merged_and_removed_when_they_are_old(tmp_path: Path) -> None:
    checkpoint = Checkpoint((tmp_path / "checkpoint").as_uri(), S3)
    names: tuple[str, ...] = ()
    for number in range(64):
        rows = pa.table({"id": pa.array([b"%d" % number]), "time": pa.array([number])})
        names = write_keys(checkpoint, number, names, rows, None if number < 63 else 10)
    # Those before 10 are removed; the other 54 are too few to be merged.
    assert sorted(KeyFile.of(name).newest for name in names) == list(range(10, 64))
    for number in range(64, 74):
        rows = pa.table({"id": pa.array([b"%d" % number]), "time": pa.array([number])})
        names = write_keys(checkpoint, number, names, rows, 10)
    (name,) = names
    assert KeyFile.of(name)[1:] == (64, 73)
    assert read_keys(checkpoint, name)["time"].to_pylist() == list(range(10, 74))
    commit = Commit(73, "x", Offsets("t"), None, names)
    checkpoint.tidy(commit)
    assert [file.name for file in (tmp_path / "checkpoint/state").iterdir()] == [name]
    keys = Keys(tmp_path / "keys", HOUR)
    follow(keys, checkpoint, commit, [], None)
    assert keys.known([b"9", b"10", b"73"], None) == [False, True, True]
    follow(keys, checkpoint, None, [], None)
    assert (keys.progress, keys.known([b"10"], None)) == (None, [False])


def test_large_files_of_ids_are_merged_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver reads what is merged."""
    checkpoint = Checkpoint((tmp_path / "checkpoint").as_uri(), S3)
    read: list[str] = []

    def read_table(_: Checkpoint, name: str, schema: pa.Schema) -> pa.Table:
        read.append(name)
        return pa.table({"id": pa.array([b"x"]), "time": pa.array([0])}, schema)

    monkeypatch.setattr(Checkpoint, "read_table", read_table)
    large = [f"keys-one_{number}_900000_{number}.parquet" for number in range(62)]
    tiny = "keys-one_62_7_62.parquet"
    rows = pa.table({"id": pa.array([b"new"]), "time": pa.array([63])})
    names = write_keys(checkpoint, 63, [*large, tiny], rows, None)
    assert read == ["keys-one_63_1_63.parquet", tiny, *large[:5]]
    assert names == (*large[5:], "keys-many_63_7_0.parquet")


def test_a_file_of_ids_is_followed_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consumer.modes.kept._ROWS_AT_ONCE", 3)
    checkpoint = Checkpoint((tmp_path / "checkpoint").as_uri(), S3)
    ids = [b"%d" % number for number in range(10)]
    names = write_keys(checkpoint, 0, (), pa.table({"id": pa.array(ids), "time": pa.array(range(10))}), None)
    keys, added = Keys(tmp_path / "keys", HOUR), list[int]()

    def add(self: Keys, rows: Iterable[tuple[bytes, int]], progress: Progress, oldest: int | None) -> None:
        rows = list(rows)
        added.append(len(rows))
        add_all(self, rows, progress, oldest)

    add_all = Keys.add
    monkeypatch.setattr(Keys, "add", add)
    follow(keys, checkpoint, Commit(0, "x", Offsets("t"), None, names), [], None)
    assert added == [3, 3, 3, 1, 0]
    assert (keys.progress, keys.known([*ids, b"10"], None)) == (Progress(0, "x"), [True] * 10 + [False])
    keys.close()


def test_a_piece_that_was_read_again_with_other_messages_is_not_written(tmp_path: Path) -> None:
    """After the loss of an executor, a task reads again what a compaction may have removed meanwhile."""
    settings = settings_of({"LAKE_HOME": tmp_path, "LAKE_DEDUPE_PARQUET": str(tmp_path / "kept")})
    mode = mode_of(ModeName.DEDUPE, settings)
    work = Work(mode, 0, None, 0, settings.kafka, settings.limits, settings.s3)
    kept = [Mask(2, np.packbits([False, True]).tobytes(), b"")]
    whole = pa.table({name: pa.nulls(2, kind) for name, kind in zip(KEPT.names, KEPT.types, strict=True)}, KEPT)
    write_kept(work, kept, Piece(0, rows=whole))
    (written,) = (tmp_path / "kept").iterdir()
    written.unlink()
    with pytest.raises(UnavailableError, match="changed while"):
        write_kept(work, kept, Piece(0, rows=whole.slice(1)))
    assert not list((tmp_path / "kept").iterdir())


@given(batches=st.lists(st.lists(EVENTS, max_size=8), max_size=5), size=st.sampled_from([1, 7, 60]))
def test_windows_equal_a_plain_model(batches: list[list[tuple[str, int, Decimal]]], size: int) -> None:
    windows = OPEN.empty_table()
    expected: dict[tuple[str, int], list[Decimal]] = defaultdict(list)
    final: dict[tuple[str, int], tuple[int, Decimal]] = {}
    newest = -(10**6)
    for events in batches:
        events = [each for each in events if each[1] >= newest - 20]  # the others are late
        new = windows_of(
            pa.array([user for user, _, _ in events], pa.string()),
            pa.array([time for _, time, _ in events], pa.int64()),
            pa.array([amount for _, _, amount in events], AMOUNT),
            size,
        )
        for user, time, amount in events:
            expected[user, time // size * size].append(amount)
        windows = merged(windows, new)
        changed = {(user, time // size * size) for user, time, _ in events}
        shown = touched(windows, new).to_pylist()
        assert [(row["user_id"], row["window_start"]) for row in shown] == sorted(changed)
        assert all(row["amount_min"] == min(expected[row["user_id"], row["window_start"]]) for row in shown)
        assert all(row["amount_max"] == max(expected[row["user_id"], row["window_start"]]) for row in shown)
        newest = max([newest, *(time for _, time, _ in events)])
        closed, windows = split_final(windows, size, newest - 20)
        assert as_final(closed, size).num_rows == closed.num_rows
        for row in closed.to_pylist():
            place = row["user_id"], row["window_start"]
            assert place not in final
            assert row["window_start"] + size <= newest - 20
            final[place] = (row["event_count"], row["amount_sum"])
        assert all(row["window_start"] + size > newest - 20 for row in windows.to_pylist())
    left = {
        (row["user_id"], row["window_start"]): (row["event_count"], row["amount_sum"]) for row in windows.to_pylist()
    }
    assert left.keys().isdisjoint(final)
    assert final | left == {place: (len(found), sum(found)) for place, found in expected.items()}


def test_sums_are_exact_and_windows_of_the_first_and_last_year_have_an_end() -> None:
    times = pa.array([-62_135_596_800_000_000, 253_402_300_799_999_999], pa.int64())
    amounts = pa.array([Decimal("999999999999.999999")] * 2, AMOUNT)
    windows = windows_of(pa.array(["u", "u"]), times, amounts, 24 * HOUR)
    assert as_final(windows, 24 * HOUR)["amount_sum"].to_pylist() == [Decimal("999999999999.999999")] * 2
    many = merged(windows, windows)
    assert many["amount_sum"].to_pylist() == [Decimal("1999999999999.999998")] * 2


def test_a_checkpoint_keeps_the_form_of_the_event_time() -> None:
    plain = {"LAKE_DEDUPE_KAFKA": "k"}
    settings = [settings_of(plain), settings_of(plain | {"LAKE_DEDUPE_EVENT_TIME_FORMAT": "epoch_ms"})]
    old, new = (pinned(mode_of(ModeName.DEDUPE, each)) for each in settings)
    assert new == old | {"event_time_format": "epoch_ms"}  # older checkpoints do not have it


def test_files_of_another_pipeline_in_a_folder_below_are_its_own(tmp_path: Path) -> None:
    rows = pa.table({"more": [1]})
    Folder((tmp_path / "events" / "second").as_uri(), S3).write("part", 9, "0000", rows)
    outer = Folder((tmp_path / "events").as_uri(), S3)
    outer.claim("checkpoint", 1)
    outer.write("part", 1, "0000", rows)
    with pytest.raises(LakeproofError, match="has files of micro-batch 1,"):
        outer.claim("checkpoint", 1)


def test_a_file_replaces_the_one_of_the_same_micro_batch(tmp_path: Path) -> None:
    folder = Folder((tmp_path / "with space").as_uri(), S3)
    folder.claim("x", 0)
    for _ in range(2):
        folder.write("part", 3, "0001", pa.table({"a": np.arange(3)}))
    folder.write("part", 4, "0000", pa.table({"a": np.arange(0)}))
    assert sorted(file.name for file in (tmp_path / "with space").iterdir()) == [
        "_lakeproof.json",
        "part-0000000003-0001.parquet",
    ]
    (tmp_path / "with space" / "other-people.parquet").touch()
    folder.claim("x", 4)
