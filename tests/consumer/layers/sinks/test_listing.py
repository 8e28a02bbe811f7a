"""A sink to files lists them only if something can have changed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.consumer.layers.gold.test_columns import COUNT, HOURLY

from consumer.iceberg.marker import Committed, Marker
from consumer.layers.sinks import files
from consumer.layers.sinks.files import FileSink
from lakeproof.errors import LakeproofError
from lakeproof.gold.model import WINDOW_START, Product, Publish, SinkKind
from lakeproof.settings import settings_of
from lakeproof.storage.local import LocalStorage

HOUR = 3_600_000_000
PRODUCT = Product("closed", "orders", "", (), HOURLY, (COUNT,), Publish.FINAL, (SinkKind.PARQUET,))


class Lake:
    """A sink whose table has the marker and windows of a test."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "published" / "closed"
        self.listings = 0
        self.now = 1_000.0
        self.starts = [0]
        self._end = 1
        self._horizon = HOUR
        self._settings = settings_of({"LAKE_HOME": str(folder)})
        self.sink = self.restarted()
        table = SimpleNamespace(newest=lambda: Committed(self._marker(), 1, 1))
        list_files = LocalStorage.list

        def listed(storage: LocalStorage) -> Any:
            self.listings += 1
            return list_files(storage)

        patch.setattr(files, "open_table", lambda *_: table)
        patch.setattr(files, "rows_of", lambda *_: pa.table({WINDOW_START: pa.array(self.starts, pa.int64())}))
        patch.setattr(files, "monotonic", lambda: self.now)
        patch.setattr(LocalStorage, "list", listed)

    def _marker(self) -> Marker:
        return Marker("silver", self._end - 1, PRODUCT.digest, "0", str(self._end), contents=str(self._horizon))

    def restarted(self) -> FileSink:
        """Return the sink of a consumer that has just been started."""
        return FileSink(self._settings, PRODUCT)

    def close(self, horizon: int, *starts: int) -> None:
        """Let windows become final."""
        self._end, self._horizon, self.starts = self._end + 1, horizon, [*starts]

    def look(self, sink: FileSink | None = None) -> str | None:
        """Look for work and do it; return the name of the file."""
        sink, spark = sink or self.sink, Any
        work = sink.next(spark)  # type: ignore[arg-type]
        if work is None:
            return None
        for commit in sink.compute(spark, work):  # type: ignore[arg-type]
            commit()
        return work.file.partition("-")[2]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Return a lake with one final window."""
    return Lake(tmp_path, monkeypatch)


def test_files_are_not_listed_while_nothing_is_new(lake: Lake) -> None:
    assert lake.look() == "first.parquet"
    assert [lake.look() for _ in range(10)] == [None] * 10
    assert lake.listings == 2
    lake.close(2 * HOUR, HOUR)
    assert [lake.look() for _ in range(10)] == [f"{HOUR}.parquet", *[None] * 9]
    assert lake.listings == 4


def test_files_are_not_listed_again_for_a_horizon_without_windows(lake: Lake) -> None:
    assert lake.look() == "first.parquet"
    lake.close(2 * HOUR)
    assert [lake.look() for _ in range(10)] == [None] * 10
    assert lake.listings == 3
    lake.close(3 * HOUR, 2 * HOUR)
    assert lake.look() == f"{HOUR}.parquet"


def test_files_that_are_moved_away_are_written_again(lake: Lake) -> None:
    assert (lake.look(), lake.look()) == ("first.parquet", None)
    for file in lake.folder.glob("*.parquet"):
        file.unlink()
    lake.now += 59
    assert lake.look() is None
    lake.now += 2
    assert (lake.look(), lake.look()) == ("first.parquet", None)
    for file in lake.folder.glob("*.parquet"):
        file.unlink()
    lake.close(2 * HOUR, 0, HOUR)
    assert lake.look() == "first.parquet"  # at once, since windows became final


def test_a_write_that_fails_is_tried_again_and_one_of_another_consumer_counts(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise LakeproofError("crashed, as asked")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "write_new", crash)
        with pytest.raises(LakeproofError, match="as asked"):
            lake.look()
    assert lake.look() == "first.parquet"
    lake.close(2 * HOUR, HOUR)
    assert lake.look(lake.restarted()) == f"{HOUR}.parquet"
    assert lake.look() is None
    assert len(list(lake.folder.glob("*.parquet"))) == 2


def test_a_restored_table_is_noticed_at_once(lake: Lake) -> None:
    lake.close(2 * HOUR, HOUR)
    assert (lake.look(), lake.look()) == ("first.parquet", None)
    lake.close(HOUR)
    with pytest.raises(LakeproofError, match="restored from an older copy"):
        lake.look()
