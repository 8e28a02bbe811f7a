"""A new check is a module of its own and a line in the registry: driver, exit code and report know it then."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.reader.verify.silver.lakes import SilverLake
from tests.reader.verify.silver.tables import KEPT
from typer.testing import CliRunner

from lakeproof.settings import Settings
from lakeproof.tables.names import silver_tables
from reader.cli import app
from reader.verify import registry
from reader.verify.check import Check, Result, Scope, Section
from reader.verify.findings import Findings

# 1. The check, in a module of its own: SQL, and what is wrong.


def check(scope: Scope) -> tuple[Result, ...]:
    """No event may be of a user who scope to be forgotten."""
    table, found = silver_tables(scope.stream).kept, Findings()
    rows = scope.session.fetch(f"SELECT event_id FROM {table} WHERE user_id = 'forgotten' ORDER BY event_id")
    if rows:
        found.add(table, "of a user who was forgotten", len(rows), [name for (name,) in rows])
    ((count,),) = scope.session.fetch(f"SELECT count(*) FROM {table}")
    return (Result({"events": count}, found.whole()),)


SECTION = Section(
    key="forgotten",
    title="Events looked through",
    columns=("events",),
    rows=lambda result: [(result.facts["events"],)],
    faults="events of users who were forgotten",
    wrong="a user was not forgotten",
    right="Nobody was forgotten in vain.",
)

# 2. A line in the registry.

LINE = Check("forgotten", SECTION, check)


@pytest.fixture
def lake(lake_settings: Settings) -> SilverLake:
    return SilverLake(lake_settings)


@pytest.fixture
def verify(
    lake: SilverLake,
    reader_environment: Callable[[Settings], dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Callable[..., tuple[int, str]]:
    monkeypatch.setattr(registry, "CHECKS", [*registry.CHECKS, LINE])
    environment = reader_environment(lake.settings) | {"LAKE_GOLD": str(tmp_path)}  # no data products

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["verify", *arguments], env=environment, catch_exceptions=False)
        return done.exit_code, done.stdout

    return run


@pytest.mark.all
def test_a_toy_check(lake: SilverLake, verify: Callable[..., tuple[int, str]]) -> None:
    lake.decide(0, 3)
    exit_code, shown = verify()
    assert exit_code == 0
    assert "Tables have the rows that were appended. Nobody was forgotten in vain." in " ".join(shown.split())
    assert re.search(r"│ events │ +4 │\n", shown)
    lake.edit(KEPT, lambda rows: [row | {"user_id": "forgotten"} if row["event_id"] == "x" else row for row in rows])
    exit_code, shown = verify("--format", "json")
    (stream,) = json.loads(shown)["streams"]
    assert exit_code == 1
    assert stream["forgotten"] == {
        "events": 4,
        "problems": [],
        "findings": [
            {"table": KEPT, "finding": "of a user who was forgotten", "rows": 1, "examples": ["x"]},
        ],
    }
    exit_code, shown = verify()
    assert exit_code == 1
    assert "events: events of users who were forgotten" in shown
    assert "and a user was not forgotten (see above)." in shown
