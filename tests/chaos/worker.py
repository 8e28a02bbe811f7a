"""Run the Python of Spark's workers with hooks or a mutant: ``python -m tests.chaos.worker -m pyspark.daemon …``."""

import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos.mutants import Mutant, install, wrap
from tests.chaos.orders import Orders, Step
from tests.chaos.processes import groups_of, signal_groups


def main() -> None:
    """Run the module that Spark starts."""
    if mutant := os.environ.get("CHAOS_MUTANT"):
        install(Mutant(mutant))
    else:
        _install_hook()
    module = sys.argv[sys.argv.index("-m") + 1]
    sys.argv = [module, *sys.argv[sys.argv.index("-m") + 2 :]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _install_hook() -> None:
    """Add a hook after dead letters are judged, before the files of their rows are closed."""
    from consumer.layers.bronze.replay_tasks import _Work

    orders, driver = Orders(Path(os.environ["CHAOS_ORDERS"])), int(os.environ["CHAOS_DRIVER"])

    def around(real: Callable[[_Work], Any]) -> Callable[[_Work], Any]:
        def close(work: _Work) -> Any:
            # The driver comes first: this worker is in one of the groups, and does not survive its own signal.
            orders.obey(Step.JUDGED_AGAIN, lambda act: signal_groups(groups_of(driver)[::-1], act.number))
            return real(work)

        return close

    wrap(_Work, "close", around)


if __name__ == "__main__":
    main()
