"""Land files whose units have known tables, and check that each unit is in its table, once."""

import json
from pathlib import Path

from tests.consumer.lake import rows
from tests.hashes import check_hashes

from lakeproof.settings import Settings
from reader.verify.driver import verify

EVENT = {"user_id": "u", "event_id": "e", "event_timestamp": "2026-11-21T06:00:00Z", "event_type": "page_view"}
_ODD = {"all-bad.json": b"{}", "none.json": b"[]"}
_UNITS = {"all-bad.json": [(0, "dead")], "none.json": []}


def land(landing: Path, *names: str) -> None:
    """Land files of one good and one bad record each; the names in `_ODD` get other content."""
    for name in names:
        path = landing / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_ODD.get(name, json.dumps([EVENT, {}]).encode()))


def check(settings: Settings, names: set[str]) -> None:
    """Check that each unit is in its table, each file in the ledger, all once, and that verify agrees."""
    expected = {name: _UNITS.get(name, [(0, "bronze"), (1, "dead")]) for name in names}
    found: dict[str, list[tuple[int, str]]] = {name: [] for name in expected}
    for table, where in (("bronze.events", "bronze"), ("dead_letters.events", "dead")):
        for row in rows(settings, table):
            found.setdefault(row["_source"], []).append((row["_position"], where))
    assert {name: sorted(units) for name, units in found.items()} == expected
    ledger = [(row["source"], row["units"], row["bronze"]) for row in rows(settings, "ledger.events")]
    assert sorted(ledger) == sorted(
        (name, len(units), sum(where == "bronze" for _, where in units)) for name, units in expected.items()
    )
    (verified,) = verify(settings, "events")
    assert (verified.off, verified.landed.problems) == ([], ())
    assert verified.clean
    check_hashes(settings)


def landed_names(landing: Path) -> set[str]:
    """Return the names of all files below a folder."""
    return {str(path.relative_to(landing)) for path in landing.rglob("*") if path.is_file()}
