"""Each drift policy on the same files, through the whole pipeline, with the results in docs/contracts/drift.md."""

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import CapturingLogger
from tests.consumer.lake import Drain
from tests.lakeproof.contracts.test_page import DRIFT, changed_record, counts, reasons, rescued, under

from consumer.layers import base
from consumer.layers.bronze.ledger import DRIFT_COUNTS
from lakeproof.contracts import DriftPolicy
from lakeproof.settings import Settings
from reader.connect import connect
from reader.verify.driver import verify

pytestmark = pytest.mark.spark

FREEZE, RESCUE, DISCARD = DriftPolicy


def by_file(settings: Settings, statement: str) -> dict[int, Any]:
    """Return a query's second column by the number in the name of the landed file."""
    with connect(settings) as session:
        found = session.connection.execute(statement).fetchall()
    assert len({source for source, _ in found}) == len(found)
    return {int(Path(source).stem): value for source, value in found}


def cells(settings: Settings, policy: DriftPolicy) -> list[str]:
    """Return a column of the page's table, computed from the lake."""
    dead = by_file(settings, f"SELECT _source, reasons FROM dead_letters.{policy}")
    kept = by_file(settings, f"SELECT _source, {'_rescued' if policy is RESCUE else 'NULL'} FROM bronze.{policy}")
    counted = {name: by_file(settings, f"SELECT source, {name} FROM ledger.{policy}") for name in DRIFT_COUNTS.values()}
    assert sorted([*dead, *kept]) == sorted(counted["rescued"]) == list(range(len(DRIFT)))
    for name, booked in counted.items():
        assert bool(any(booked.values())) == (name == DRIFT_COUNTS.get(policy))
    told = []
    for number in range(len(DRIFT)):
        if number in dead:
            told.append(reasons({"reasons": dead[number]}))
        elif policy is RESCUE:
            told.append(rescued((kept[number] or {}).items()))
            assert sum(counted["rescued"][number].values()) == len(kept[number] or ())
        else:
            told.append(counts(counted["discarded"][number]) if policy is DISCARD else "no")
    return told


def test_each_policy_does_what_the_page_says(
    lake_settings: Settings,
    drain_directly: Drain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = lake_settings.model_copy(update={"contracts": tmp_path / "contracts"})
    settings.contracts.mkdir()
    seen = {}
    for policy in DriftPolicy:
        (settings.contracts / f"{policy}.yaml").write_text(under(policy).replace("name: orders", f"name: {policy}"))
        landing = settings.home / "landing" / policy
        landing.mkdir(parents=True)
        for number, row in enumerate(DRIFT):
            (landing / f"{number}.json").write_bytes(changed_record(row[0]))
        log = CapturingLogger()
        monkeypatch.setattr(base, "log", log)
        drain_directly(settings, policy)
        logged = [call.kwargs for call in log.calls if call.args == ("micro-batch",) and call.kwargs["files"]]
        [counted] = [line.keys() & {"rescued", "discarded"} for line in logged]
        assert counted == {DRIFT_COUNTS[policy] for _ in range(policy is not FREEZE)}
        seen[policy] = cells(settings, policy)

    as_frozen = "dead letter as with `freeze`"
    for column, policy in enumerate(DriftPolicy, 1):
        expected = [row[1] if row[column] == as_frozen else row[column] for row in DRIFT]
        assert seen[policy] == expected
    with connect(settings) as session:
        rows = "SELECT channel, lines, _position FROM {} WHERE channel IS NULL OR lines IS NOT NULL ORDER BY ALL"
        left, right = (
            session.connection.execute(rows.format(f"bronze.{each}")).fetchall() for each in (RESCUE, DISCARD)
        )
    assert left == right
    assert len(left) == 3
    found = verify(settings, values=True)
    assert [
        (each.stream, each.off, each.landed.facts["landed_units"], each.landed.facts["sampled_rows"]) for each in found
    ] == [
        (policy, [], len(DRIFT), len(DRIFT) - sum(cell.startswith("`") and "→" not in cell for cell in seen[policy]))
        for policy in sorted(DriftPolicy)
    ]
