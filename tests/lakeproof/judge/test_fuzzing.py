"""Random records of random contracts, which must also find the mutants of the native judge."""

from pathlib import Path

import pytest
from tests.lakeproof.judge.fuzzing import Made, check, shipped
from tests.lakeproof.judge.native_mutants import MUTANTS, build, is_found
from tests.pages import blocks
from tests.test_docs import shell

from lakeproof.contracts import Contract

pytestmark = pytest.mark.usefixtures("native")


@pytest.mark.parametrize("contract", list(shipped()), ids=lambda contract: f"{contract.stream}-{contract.drift}")
def test_the_judges_agree_on_records_of_a_shipped_contract(contract: Contract) -> None:
    assert check(contract, Made(1), 800) > 100


def test_the_judges_agree_on_records_of_random_contracts() -> None:
    made = Made(2)
    assert sum(check(made.contract(), made, 100) for _ in range(30)) > 300


@pytest.mark.long  # builds the native judge for each mutant
@pytest.mark.parametrize("name", ["an array's index is off by one", "integers wrap"])
def test_a_mutant_is_found(name: str, tmp_path: Path) -> None:
    (mutant,) = (each for each in MUTANTS if each.name == name)
    assert "differences" in is_found(build(mutant, tmp_path), 20_000)


@pytest.mark.all
def test_the_command_of_the_docs_finds_no_difference() -> None:
    (command,) = blocks("docs/judges.md", "sh")
    said = shell(command, {})
    assert said.count("units alike") == 10


def test_each_mutant_changes_one_place() -> None:
    for mutant in MUTANTS:
        text = (Path(__file__).parents[3] / "src" / "native-judge" / "src" / f"{mutant.file}.rs").read_text()
        assert text.count(mutant.old) == 1, mutant.name
