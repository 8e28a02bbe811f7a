"""The short form of the grid's second part: what operators and other tools do, while real programs use the lake."""

from collections.abc import Callable

import pytest
from tests.chaos.bench import Bench, Catalog
from tests.chaos.grid import Outcome, Verdict
from tests.chaos.orders import Step

pytestmark = [pytest.mark.spark, pytest.mark.long]

Run = Callable[[Bench, str], Outcome]


@pytest.mark.parametrize(
    "name",
    [
        "checkpoints and landing log restored from an older copy",
        "maintained by plain Spark while it runs",
    ],
)
def test_local(local_bench: Bench, run: Run, name: str) -> None:
    outcome = run(local_bench, name)
    assert outcome.verdict is Verdict.GREEN, outcome


@pytest.mark.s3
def test_minio(minio_bench: Bench, run: Run) -> None:
    outcome = run(minio_bench, "catalog restored from an older copy")
    assert outcome.verdict is Verdict.GREEN, outcome


@pytest.mark.parametrize(
    ("catalog", "name"),
    [
        (Catalog.POSTGRES, "two first starts at once"),
        (Catalog.REST, f"{Step.BRONZE_APPENDED}, checkpoint lost"),
    ],
)
def test_catalogs(catalog_bench: Callable[[Catalog], Bench], run: Run, catalog: Catalog, name: str) -> None:
    outcome = run(catalog_bench(catalog), name)
    assert outcome.verdict is Verdict.GREEN, outcome
