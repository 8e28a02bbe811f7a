"""The short form of `make chaos`: a consumer is hurt, starts again, and nothing is lost or doubled.

Faults that need a real process are here. Crashes at every step, with every piece lost, are in tests/consumer/app/.
"""

from collections.abc import Callable

import pytest
from tests.chaos.bench import Bench
from tests.chaos.grid import Outcome, Verdict
from tests.chaos.orders import Step
from tests.selection import only_with_all

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize(
    "name",
    [
        f"killed {Step.BRONZE_APPENDED}",
        only_with_all(f"killed {Step.SILVER_LEDGER_APPENDED}"),
        only_with_all("two consumers at once"),
    ],
)
def test_local(local_bench: Bench, run: Callable[[Bench, str], Outcome], name: str) -> None:
    outcome = run(local_bench, name)
    assert outcome.verdict is Verdict.GREEN, outcome
