"""The checks can fail: each fault put into the consumer or its tables turns the grid red.

The same scenarios without a fault are green. `make chaos` runs those that are marked as long.
"""

import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from pyiceberg.expressions import And, EqualTo
from tests.chaos.bench import Bench, Catalog
from tests.chaos.grid import Outcome, Verdict
from tests.chaos.lake import TABLES
from tests.chaos.mutants import Mutant
from tests.chaos.orders import Step

from lakeproof.catalog import open_catalog
from lakeproof.tables.names import POSITION, SOURCE

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Run = Callable[[Bench, str], Outcome]


def test_each_mutant_finds_what_it_replaces() -> None:
    """A mutant whose import fails would turn the grid red as well."""
    script = "from tests.chaos.mutants import Mutant, install\nfor mutant in Mutant:\n    install(mutant)"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.all
@pytest.mark.parametrize(
    ("mutant", "name"),
    [
        (Mutant.NO_MARKER_CHECK, f"killed {Step.BRONZE_APPENDED}"),
        pytest.param(
            Mutant.NO_LEDGER_CHECK, f"{Step.BRONZE_APPENDED}, checkpoint and landing log lost", marks=pytest.mark.long
        ),
        pytest.param(Mutant.TRAILING_GARBAGE, "a file with garbage at its end", marks=pytest.mark.long),
    ],
)
def test_a_mutant_of_the_consumer_doubles_units(
    mutant_bench: Callable[[Mutant], Bench], run: Run, mutant: Mutant, name: str
) -> None:
    outcome = run(mutant_bench(mutant), name)
    assert outcome.verdict is Verdict.RED
    assert outcome.hits
    assert outcome.doubled
    assert "verify: exit code 1" in outcome.problems[-1]


@pytest.mark.long
@pytest.mark.parametrize(
    ("mutant", "name", "what"),
    [
        (Mutant.NO_SILVER_LOOK_UP, f"killed {Step.SILVER_APPENDED}", "doubled"),
        (Mutant.NO_MARKER_CHECK_IN_SILVER, f"killed {Step.SILVER_LEDGER_APPENDED}", "doubled"),
        (Mutant.EMPTY_KEY_INDEX, f"{Step.SILVER_APPENDED}, no key index", "doubled"),
        (Mutant.NO_REMOVAL_IN_GOLD, f"killed {Step.GOLD_UPSERTED}", "doubled"),
        (Mutant.NEW_ROWS_ONLY_IN_GOLD, f"killed {Step.GOLD_COMPUTED}", "lost"),
    ],
)
def test_a_mutant_of_silver_or_gold_is_seen_by_the_harness_and_by_verify(
    mutant_bench: Callable[[Mutant], Bench], run: Run, mutant: Mutant, name: str, what: str
) -> None:
    outcome = run(mutant_bench(mutant), name)
    assert outcome.verdict is Verdict.RED
    assert outcome.hits
    assert {"lost": outcome.lost, "doubled": outcome.doubled}[what]
    assert "verify: exit code 1" in outcome.problems[-1]


@pytest.mark.long
def test_markers_by_number_lose_what_landed_after_a_restore(mutant_bench: Callable[[Mutant], Bench], run: Run) -> None:
    name = "checkpoints and landing log restored from an older copy"
    outcome = run(mutant_bench(Mutant.MARKERS_BY_NUMBER), name)
    assert outcome.verdict is Verdict.RED
    assert outcome.hits
    assert outcome.lost


@pytest.mark.long
@pytest.mark.parametrize("catalog", [Catalog.POSTGRES, Catalog.REST])
def test_commits_that_iceberg_tries_again_destroy_tables(
    mutant_bench: Callable[..., Bench], run: Run, catalog: Catalog
) -> None:
    outcome = run(mutant_bench(Mutant.COMMITS_TRIED_AGAIN, catalog=catalog), "answers of the catalog lost")
    assert outcome.verdict is Verdict.RED
    (problem,) = outcome.problems
    assert re.search(r"Failed to open local file '.*\.avro'", problem)  # a manifest of a commit that landed


@pytest.mark.long
def test_without_the_lease_a_second_consumer_is_not_refused(mutant_bench: Callable[[Mutant], Bench], run: Run) -> None:
    outcome = run(mutant_bench(Mutant.NO_LEASE), "two consumers at once")
    assert outcome.verdict is Verdict.RED
    assert "the second one was not refused with a clear line" in outcome.problems


@pytest.mark.long
def test_a_row_planted_or_removed_is_seen(local_bench: Bench) -> None:
    lake = local_bench.ready()
    local_bench.check(clean := Outcome(hits=1))
    assert clean.verdict is Verdict.GREEN
    bronze = open_catalog(lake.settings).load_table(TABLES.bronze)
    row = bronze.scan(limit=1).to_arrow()

    bronze.append(row)
    local_bench.check(planted := Outcome(hits=1))
    # The row is in bronze twice, and silver has no verdict on the second one.
    assert (planted.verdict, planted.lost, planted.doubled) == (Verdict.RED, 1, 1)
    assert planted.problems == ["verify: exit code 1: doubled"]

    bronze.delete(And(EqualTo(SOURCE, row[SOURCE][0].as_py()), EqualTo(POSITION, row[POSITION][0].as_py())))
    local_bench.check(removed := Outcome(hits=1))
    # The row is lost in bronze, and silver has counted one row more than bronze has.
    assert (removed.verdict, removed.lost, removed.doubled) == (Verdict.RED, 1, 1)
    assert removed.problems == ["verify: exit code 1: lost"]
    local_bench.give_up()
