"""The Python of Spark's workers with a mutant: ``python -m tests.chaos.worker -m pyspark.daemon …``."""

import os
import runpy
import sys

from tests.chaos.mutants import Mutant, install

if __name__ == "__main__":
    install(Mutant(os.environ["CHAOS_MUTANT"]))
    module = sys.argv[sys.argv.index("-m") + 1]
    sys.argv = [module, *sys.argv[sys.argv.index("-m") + 2 :]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
