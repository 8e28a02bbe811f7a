"""Scenarios of silver and gold alone: their key index is lost, or a rebuild of them is interrupted."""

import shutil
from collections.abc import Callable

from tests.chaos.advice import go_on
from tests.chaos.bench import Bench
from tests.chaos.grid import Outcome
from tests.chaos.lake import PRODUCT, STREAM
from tests.chaos.orders import Act, Step

from lakeproof.catalog import open_catalog
from lakeproof.contracts import SilverStrategy

Run = Callable[[Bench], Outcome]


def index_lost(step: Step, *, old: bool) -> Run:
    """Strategy `state`: the consumer is killed at a step, and the key index is lost, or replaced by an old copy."""

    def run(bench: Bench) -> Outcome:
        if bench.strategy is not SilverStrategy.STATE:
            bench.new_lake(strategy=SilverStrategy.STATE).land(4)
        bench.ready()
        bench.stop()
        lake = bench.lake
        copy = lake.folder / "saved-index"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(lake.index, copy)
        bench.kill_at(step)
        shutil.rmtree(lake.index)
        if old:
            shutil.copytree(copy, lake.index)
        lake.land_again(lake.files[0], f"again-{len(lake.files)}.json")  # keys that only the index has
        return bench.recover(Outcome(hits=1))

    return run


def rebuild_killed(layer: str, step: Step) -> Run:
    """A rebuild is killed; the consumer uses the old tables or gives advice, and a second rebuild succeeds."""

    def run(bench: Bench) -> Outcome:
        bench.ready()
        bench.stop()
        name = STREAM if layer == "silver" else PRODUCT
        bench.orders.give(step, Act.KILL)
        bench.end_by_kill(bench.start_victim("rebuild", layer, name), step)
        bench.lake.land(3)
        outcome = go_on(bench, Outcome(hits=1))
        if outcome.problems:
            return outcome
        bench.stop()
        bench.run_program("consumer", "rebuild", layer, name)
        if go_on(bench, outcome).problems:
            return outcome
        left = [
            f"{namespace}.{table}"
            for namespace in ("silver", "gold")
            for _, table in open_catalog(bench.lake.settings).list_tables(namespace)
            if "__" in table
        ]
        if left:
            outcome.problems.append(f"tables were left behind: {', '.join(left)}")
            bench.give_up()
        return outcome

    return run
