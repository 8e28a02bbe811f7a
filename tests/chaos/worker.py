"""The Python of Spark's workers with hooks or a mutant: ``python -m tests.chaos.worker -m pyspark.daemon …``."""

import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

from tests.chaos.mutants import Mutant, install, wrap
from tests.chaos.orders import Orders, Step
from tests.chaos.processes import groups_of, signal_groups

from consumer.layers.bronze.replay_tasks import Replayed, _Work


def main() -> None:
    """Run the module that Spark asks for."""
    if mutant := os.environ.get("CHAOS_MUTANT"):
        install(Mutant(mutant))
    wrap(_Work, "close", _around_close)
    module = sys.argv[sys.argv.index("-m") + 1]
    sys.argv = [module, *sys.argv[sys.argv.index("-m") + 2 :]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _around_close(real: Callable[[_Work], Replayed]) -> Callable[[_Work], Replayed]:
    """Rows are judged and maybe written, and their files have no end."""
    orders, driver = Orders(Path(os.environ["CHAOS_ORDERS"])), int(os.environ["CHAOS_DRIVER"])

    def close(work: _Work) -> Replayed:
        # The driver first: this worker is in one of the groups, and does not survive its own signal.
        orders.obey(Step.JUDGED_AGAIN, lambda act: signal_groups(groups_of(driver)[::-1], act.number))
        return real(work)

    return close


if __name__ == "__main__":
    main()
