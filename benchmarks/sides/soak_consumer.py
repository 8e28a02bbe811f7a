"""``consumer run``, which records the time of each commit and each micro-batch.

Run as ``python -m benchmarks.sides.soak_consumer NOTES ARGUMENT...``. A line of the notes is ``{"at", "what",
"seconds"}``; ``what`` is ``commit`` or the name of a query.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from consumer import cli
from consumer.iceberg import append
from consumer.layers import base


def main() -> None:
    """Run the command line, with its steps timed."""
    path = Path(sys.argv.pop(1))
    with path.open("w", buffering=1) as notes:

        def timed(real: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
            def step(*arguments: Any) -> Any:
                began = time.perf_counter()
                result = real(*arguments)
                line = {"at": time.time(), "what": name(*arguments), "seconds": time.perf_counter() - began}
                notes.write(f"{json.dumps(line)}\n")
                return result

            return step

        vars(append).update(_commit=timed(append._commit, lambda *_: "commit"))
        vars(base).update(complete=timed(base.complete, lambda layer, *_: str(layer.name)))
        cli.main()


if __name__ == "__main__":
    main()
