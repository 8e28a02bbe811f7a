"""Late rows that correct windows of a large product: ``python -m benchmarks.sides.late_rows WINDOWS``."""

import json
import statistics
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT
from benchmarks.history_tables import History
from benchmarks.sides.layers import declare
from consumer.layers.base import take as take_micro_batch
from consumer.layers.gold.aggregate import GoldLayer
from consumer.layers.gold.table import ensure_gold_table
from consumer.spark.session import PLANNING_ONLY, start_session
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.gold.product_file import load_product
from lakeproof.settings import Settings, load_settings
from lakeproof.state.lease import gold_lease, lease
from lakeproof.storage.local import local_path
from lakeproof.tables.names import gold_table
from lakeproof.tables.schemas import ensure_namespace
from reader.connect import connect

_LATE = 100
_DAYS = 10
_RUNS = 3


def main() -> None:
    """Fill the product; then time corrections of windows in one day, and in ten days."""
    windows = int(sys.argv[1])
    declare("merge")
    settings = load_settings()
    spark = start_session(settings, "benchmark: late rows", PLANNING_ONLY)
    history = History(spark, settings, timedelta(days=_DAYS), users=windows)
    history.keep(windows)
    product = load_product(ROOT / "gold", "user_activity", partial(load_contract, settings.contracts))
    name = gold_table(product.name)
    ensure_namespace(open_catalog(settings), "gold")
    ensure_gold_table(spark, product, name)
    found: dict[str, dict[str, float]] = {}
    with lease(settings.state.database, gold_lease(product.name)) as held:
        layer = GoldLayer(settings, product, name)

        def take() -> float:
            began = time.perf_counter()
            assert take_micro_batch(layer, spark, held)
            return time.perf_counter() - began

        filled = take()
        events = windows
        _read(settings, windows, events)
        for days in (1, _DAYS):
            runs = []
            for _ in range(_RUNS + 1):
                history.keep_late(_LATE, days)
                before = dict(_files(settings, name))
                seconds = take()
                new = {path: size for path, size in _files(settings, name) if path not in before}
                events += _LATE
                rows = sum(size for path, size in new.items() if "/metadata/" not in path)
                runs.append((seconds, rows, sum(new.values()) - rows, _read(settings, windows, events)))
            names = ("seconds", "data_bytes", "metadata_bytes", "duckdb_s")
            columns = zip(*runs[1:], strict=True)  # the first run is a warm-up
            found[str(days)] = {name: statistics.median(column) for name, column in zip(names, columns, strict=True)}
    spark.stop()
    print(json.dumps({"filled_s": filled, "windows": windows, "days": found}))


def _files(settings: Settings, name: str) -> Iterator[tuple[str, int]]:
    folder = local_path(open_catalog(settings).load_table(name).location())
    yield from ((str(path), path.stat().st_size) for path in Path(folder).rglob("*") if path.is_file())


def _read(settings: Settings, windows: int, events: int) -> float:
    """Check that DuckDB reads all windows with all events; return the seconds."""
    with connect(settings) as session:
        began = time.perf_counter()
        result: Any = session.sql("SELECT count(*), sum(event_count), count(DISTINCT user_id) FROM gold.user_activity")
        assert result.fetchall() == [(windows, events, windows)]
        return time.perf_counter() - began


if __name__ == "__main__":
    main()
