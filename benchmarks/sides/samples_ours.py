"""lakeproof's query from silver to samples: ``python -m benchmarks.sides.samples_ours window 10000 30 30 60``."""

import json
import sys
from datetime import UTC, datetime, timedelta

from pyiceberg.expressions import GreaterThanOrEqual

from benchmarks.sides.readings import SECOND, STREAM, Kept, Load, Silver, compared, follow, product
from consumer.iceberg.marker import committed
from consumer.layers.base import take as take_micro_batch
from consumer.layers.samples.sample import SamplesLayer
from consumer.queries.layer import LayerQuery
from consumer.spark.session import PLANNING_ONLY, start_session
from lakeproof.catalog import open_catalog
from lakeproof.gold.samples import Grouping
from lakeproof.settings import load_settings
from lakeproof.state.lease import gold_lease, lease
from lakeproof.tables.names import gold_query, samples_tables, silver_tables
from lakeproof.tables.schemas import ensure_samples_tables


def main() -> None:
    """Process each commit of silver, timed."""
    load = Load(*(int(argument) for argument in sys.argv[2:]))
    settings = load_settings()
    samples = product(settings, Grouping(sys.argv[1]))
    tables = samples_tables(samples.name, samples.anomalies)
    spark = start_session(settings, "benchmark: samples", PLANNING_ONLY)
    for name, value in LayerQuery.spark_settings.items():
        spark.conf.set(name, value)
    silver = Silver(spark, settings)
    ensure_samples_tables(open_catalog(settings), samples, tables)
    with lease(settings.state.database, gold_lease(samples.name)) as held:
        layer = SamplesLayer(settings, samples, tables)

        def take() -> None:
            while take_micro_batch(layer, spark, held):
                pass

        def kept() -> Kept:
            """Return the size of the files of silver with readings of unpublished windows."""
            catalog = open_catalog(settings)
            published = committed(dict(catalog.load_table(tables.samples).properties), gold_query(samples.name))
            if published is None:
                raise RuntimeError("Nothing was published.")
            since = int(published.marker.contents) - samples.window.size // timedelta(microseconds=1)
            at = datetime.fromtimestamp(since / SECOND, UTC).isoformat()
            open_ = catalog.load_table(silver_tables(STREAM).kept).scan(GreaterThanOrEqual("event_time", at))
            return Kept(memory=0, disk=sum(task.file.file_size_in_bytes for task in open_.plan_files()))

        figures = follow(silver, load, take, kept)
    spark.stop()
    print(json.dumps(figures | compared(settings, tables.samples, load)))


if __name__ == "__main__":
    main()
