"""Micro-batches on S3 with a slow REST catalog, and their requests.

Run as a side: ``python -m benchmarks.sides.model_latency CATALOG_PORT S3_PORT FILES DELAY...``: the last delay is held
out, and applied to bronze only.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.delays import DelayingProxy
from benchmarks.model_inputs import cut
from benchmarks.sides.model_layers import STREAM, Pipeline, Used
from consumer.sources.files.discovery import Discovery
from consumer.spark.session import PLANNING_ONLY, start_session
from lakeproof.landing.zone import zone_at
from lakeproof.settings import Settings, load_settings
from lakeproof.state.landing_log import LandingLog
from lakeproof.state.lease import lease
from lakeproof.storage.s3 import s3_client

_UPLOADS = 8
_FILES = 8


def main() -> None:
    """Run micro-batches of each size, then at each delay; print samples."""
    catalog, storage = DelayingProxy(int(sys.argv[1])), DelayingProxy(int(sys.argv[2]))
    files, delays = int(sys.argv[3]), [float(each) for each in sys.argv[4:]]
    os.environ |= {
        "LAKE_CATALOG": "rest",
        "LAKE_CATALOG_URI": catalog.uri,
        "AWS_ENDPOINT_URL": storage.uri,
        "LAKE_SPARK_MASTER": "local[2]",
        "LAKE_MAX_ROWS_PER_SILVER_MICRO_BATCH": str(1 << 40),
    }
    settings = load_settings()
    samples = list(_listings(settings, storage, files))
    spark = start_session(settings, "benchmark: latency", PLANNING_ONLY)
    samples += list(_rounds(settings, spark, catalog, storage, delays))
    spark.stop()
    print(json.dumps({"samples": samples}))


def _rounds(
    settings: Settings, spark: SparkSession, catalog: DelayingProxy, storage: DelayingProxy, delays: list[float]
) -> Iterator[dict[str, Any]]:
    pipeline, backlog = Pipeline(settings, spark), cut(Path(os.environ["MODEL_SMALL"]))
    layers = pipeline.layers()
    sizes = [(_FILES * times, 0.0) for times in (1, 2, 4, 8)] + [(_FILES, delay) for delay in delays]
    with lease(settings.state.database, STREAM) as held:
        for number, (count, delay) in enumerate([(_FILES, 0.0), (_FILES, 0.0), *sizes]):
            _upload(settings, f"{settings.landing.uri}/{STREAM}/{number:03d}", [next(backlog) for _ in range(count)])
            of_bronze = delay == delays[-1] and delay > 0
            for layer in [None] if of_bronze else [None, *layers]:
                work = pipeline.of_layer(layer, held) if layer else pipeline.of_bronze(held)
                catalog.requests.clear()
                storage.requests.clear()
                catalog.seconds = delay
                used, said = Used.by(work)
                catalog.seconds = 0.0
                if number > 1:
                    yield {
                        "layer": layer.name.partition("-")[0] if layer else "bronze",
                        "files": count,
                        "delay": delay,
                        "held_out": of_bronze,
                        "wall": used.wall,
                        "commit": said["phases"]["commit"],
                        "catalog": dict(catalog.requests),
                        "s3": dict(storage.requests),
                    }


def _listings(settings: Settings, storage: DelayingProxy, files: int) -> Iterator[dict[str, Any]]:
    """List landing zones in a bucket for the first time."""
    root, begin = settings.landing.uri.removesuffix("/landing"), Path(os.environ["BENCH_FOLDER"]) / "empty.json"
    begin.write_bytes(b"[]")
    for size in (files, files * 2, files * 4, files * 8):
        uri = f"{root}/listed-{size}"
        _upload(settings, uri, [begin] * size)
        database = f"sqlite:///{os.environ['BENCH_FOLDER']}/listed-{size}.db"
        discovery = Discovery(zone_at(uri, settings.s3), LandingLog(database, STREAM), timedelta(0))
        storage.requests.clear()
        began = time.process_time()
        found = discovery.sweep()
        if found != size:
            raise AssertionError(f"{found} of {size} files were found.")
        seconds = time.process_time() - began
        yield {"phase": "list in a bucket", "files": size, "seconds": seconds, "s3": dict(storage.requests)}


def _upload(settings: Settings, uri: str, paths: list[Path]) -> None:
    client = s3_client(settings.s3)
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")

    def put(numbered: tuple[int, Path]) -> None:
        number, path = numbered
        client.put_object(Bucket=bucket, Key=f"{prefix}/{number:09d}.json", Body=path.read_bytes())

    with ThreadPoolExecutor(_UPLOADS) as pool:
        list(pool.map(put, enumerate(paths)))


if __name__ == "__main__":
    main()
