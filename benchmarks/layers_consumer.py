"""``consumer run events`` to gold, until SIGTERM. Run as ``python -m benchmarks.layers_consumer``."""

import sys

from consumer.cli import main

if __name__ == "__main__":
    sys.argv[1:] = ["run", "events"]
    main()
