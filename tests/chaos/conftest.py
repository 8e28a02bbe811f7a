"""Benches for the short form of the grid."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.chaos.bench import Bench, Options
from tests.chaos.grid import Outcome
from tests.chaos.scenarios import run_scenario, scenarios

RANDOM_KILLS = 3
SHORT_LEASE = 4.0
OpenBench = Callable[..., Bench]


# Scoped to a module, not the session: otherwise their consumers would keep running beside all other tests.
@pytest.fixture(scope="module")
def local_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Yield a bench on local storage that all tests share, like the scenarios of the grid."""
    with Bench(Options(tmp_path_factory.mktemp("chaos"), seed=1, lease_seconds=SHORT_LEASE)) as bench:
        yield bench


@pytest.fixture(scope="module")
def kafka_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Yield a bench on local storage whose batches are messages of its own broker."""
    with Bench(Options(tmp_path_factory.mktemp("chaos"), seed=3, lease_seconds=SHORT_LEASE, kafka=True)) as bench:
        yield bench


@pytest.fixture
def mutant_bench(tmp_path: Path) -> Iterator[OpenBench]:
    """Yield a function that opens benches on local storage whose consumer is broken."""
    with ExitStack() as stack:
        yield lambda mutant, **others: stack.enter_context(
            Bench(Options(tmp_path, seed=1, lease_seconds=SHORT_LEASE, mutant=mutant, **others))
        )


@pytest.fixture
def run() -> Callable[[Bench, str], Outcome]:
    """Return a function that runs a scenario of the grid by its name."""

    def run_named(bench: Bench, name: str) -> Outcome:
        scenario = next(each for each in scenarios(RANDOM_KILLS) if each.name == name)
        return run_scenario(scenario, bench).outcome

    return run_named
