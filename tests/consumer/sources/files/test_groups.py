"""How landed files are divided among tasks. No Spark."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from consumer.sources.files.source import FileReader, most_bytes
from lakeproof.landing.zone import LandingZone
from lakeproof.settings import settings_of
from lakeproof.state.landing_log import LandedFile

READER = FileReader(LandingZone("file:///landing", settings_of({}).s3))
MEGABYTE = 1 << 20


def files(sizes: list[int]) -> list[LandedFile]:
    return [LandedFile(seq, f"{seq}.json", size, "", datetime.now(UTC)) for seq, size in enumerate(sizes)]


@given(sizes=st.lists(st.integers(0, 64 * MEGABYTE), max_size=60), cores=st.integers(1, 8))
def test_each_file_is_in_one_group_in_its_order(sizes: list[int], cores: int) -> None:
    groups = READER.groups(files(sizes), cores)
    assert sorted(file.seq for group in groups for file in group) == list(range(len(sizes)))
    assert all(group == sorted(group, key=lambda file: file.seq) for group in groups)
    assert all(groups)
    assert len(groups) <= 2 * cores


def test_small_files_are_one_task_and_large_ones_several_for_each_core() -> None:
    assert len(READER.groups(files([1000] * 50), 2)) == 1
    groups = READER.groups(files([8 * MEGABYTE] * 50), 2)
    assert sorted(map(len, groups)) == [12, 12, 13, 13]


def test_a_micro_batch_has_files_for_all_cores_unless_a_setting_limits_it() -> None:
    assert most_bytes(settings_of({}), 2) == most_bytes(settings_of({}), 32) == 1024 * MEGABYTE
    assert most_bytes(settings_of({"LAKE_MAX_BYTES_PER_MICRO_BATCH": "1000"}), 100) == 1000
    assert most_bytes(settings_of({}), 100) == 100 * 32 * MEGABYTE
