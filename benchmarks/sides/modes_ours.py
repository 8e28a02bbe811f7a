"""A mode of lakeproof over a topic: ``python -m benchmarks.sides.modes_ours windows``."""

import json
import os
import sys
import time
from pathlib import Path

from benchmarks.sides.modes_plain import WATERMARK, WINDOW, written
from consumer.layers.base import take
from consumer.modes.layer import ModeLayer
from consumer.spark.session import PLANNING_ONLY, start_session
from lakeproof.kafka.modes import ModeName, load_mode
from lakeproof.state.lease import lease


def main() -> None:
    """Run the mode, timed; then count."""
    name, folder = ModeName(sys.argv[1]), Path(os.environ["BENCH_FOLDER"]) / "out"
    options = {"parquet": str(folder), "watermark": WATERMARK}
    if name is ModeName.WINDOWS:
        options["window"] = WINDOW
    settings, mode = load_mode(name, None, options)
    spark = start_session(settings, "benchmark: modes", PLANNING_ONLY)
    began = time.monotonic()
    layer = ModeLayer(settings, mode, to_the_end=True)
    with lease(settings.state.database, layer.lease_name) as held:
        layer.resume()
        while take(layer, spark, held):
            pass
        seconds = time.monotonic() - began
    layer.close()
    spark.stop()
    print(json.dumps({"seconds": seconds} | written(folder, name)))


if __name__ == "__main__":
    main()
