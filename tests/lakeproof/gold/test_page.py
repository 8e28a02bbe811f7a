"""docs/gold.md is correct."""

import os
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest
from tests.pages import blocks
from tests.programs import forked

from lakeproof.contracts import DecimalType, Field, PrimitiveType, load_contract
from lakeproof.contracts.constraints import ContractError
from lakeproof.contracts.model import type_name
from lakeproof.contracts.rules.types import RuleError
from lakeproof.errors import UsageError
from lakeproof.gold.measures import parse_measure
from lakeproof.gold.product_file import parse_product
from lakeproof.gold.window import read_window

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "gold.md").read_text()
EXAMPLE, SESSION = blocks("docs/gold.md", "yaml")
FIELDS = (
    Field("x", DecimalType(32, 4)),
    Field("i", PrimitiveType.INT),
    Field("l", PrimitiveType.LONG),
    Field("b", PrimitiveType.BOOLEAN),
    Field("d", PrimitiveType.DOUBLE),
    Field("y", PrimitiveType.TIMESTAMP),
)


def table(*header: str) -> list[list[str]]:
    """Return the rows of the table whose header starts with these cells."""
    _, _, rest = PAGE.partition(f"| {' | '.join(header)}")
    rows = re.match(r".*\n\|[-|]+\n((?:\|.*\n)+)", rest)
    assert rows, header
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[1].splitlines()]


def test_the_example_is_the_product_that_is_shipped():
    assert (ROOT / "gold" / "user_activity.yaml").read_text() == EXAMPLE
    assert SESSION in (ROOT / "gold" / "sessions.yaml").read_text()


def test_every_key_is_listed():
    keys = [row[0].strip("`") for row in table("key", "expected value")]
    assert keys == [
        "name", "kind", "silver", "description", "keys", "window.size", "window.every", "window.gap", "measures",
        "publish", "sinks", "maintenance",
    ]  # fmt: skip


@pytest.mark.parametrize("row", table("size", "every", "windows"), ids=lambda row: " ".join(row[:2]))
def test_windows_are_taken_and_rejected_as_listed(row):
    size, every, what = row[0].strip("`"), row[1].strip("`") or None, row[2]
    if not what.startswith("rejected: "):
        assert read_window(size, every)
        return
    with pytest.raises(ContractError) as caught:
        read_window(size, every)
    said = what.removeprefix("rejected: ")
    assert said.replace("the size", f"the size, {size},") in caught.value.message


def test_measures_have_the_types_that_are_listed():
    for name, argument, kind, empty in table("measure", "argument", "type"):
        for sql in re.findall(r"`([^`]+)`", name):
            fields = "il" if argument.startswith("int") else "x"
            for field in fields:
                made = parse_measure("m", re.sub(r"\bx\b", field, sql), FIELDS)
                own = made.argument and type_name(made.argument.kind)
                expected = {"decimal(38,s)": "decimal(38,4)", "that of the argument": own}.get(kind, kind)
                assert type_name(made.type) == expected
                assert (empty == "0") == sql.startswith("count")


@pytest.mark.parametrize(
    "sql",
    [
        "sum(d)",
        "avg(x)",
        "count(*) FILTER (WHERE b)",
        "sum(x) OVER ()",
        "sum(DISTINCT x)",
        "sum(x) + 1",
        "first(x)",
        "arg_min(x, y)",
        "max(min(x))",
    ],
)
def test_what_is_rejected_is(sql):
    with pytest.raises(RuleError):
        parse_measure("m", sql, FIELDS)


@pytest.mark.parametrize(("mistake", "said"), table("the mistake"))
def test_each_mistake_is_told_so(mistake, said, monkeypatch):
    monkeypatch.chdir(ROOT)
    key = mistake.strip("`").partition(": ")[0]
    broken = re.sub(rf"^( *){key}: .*$", lambda found: found[1] + mistake.strip("`"), EXAMPLE, flags=re.MULTILINE)
    with pytest.raises(UsageError) as caught:
        parse_product(broken.encode(), "user_activity.yaml", "user_activity", partial(load_contract, Path("contracts")))
    assert caught.value.message == said.strip("`")


def test_the_command_prints_what_the_page_says():
    [(command, printed)] = re.findall(r"^```console\n\$ lakeproof (.*?)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [*forked("lakeproof"), *command.split()],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == printed
