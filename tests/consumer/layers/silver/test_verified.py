"""Output of the consumer is clean to verify, which decides all rows again with code of its own."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.consumer.lake import Drain, SessionOf
from tests.consumer.layers.silver.lakes import decide_all
from tests.lakes import changed
from tests.selection import only_with_all

from lakeproof.settings import Settings
from reader.connect import connect
from reader.verify.check import Scope
from reader.verify.checks import silver

pytestmark = pytest.mark.spark

CONTRACT = """
apiVersion: v3.2.0
kind: DataContract
id: samples
version: 1.0.0
status: active
customProperties:
  - {property: eventTime, value: when.at}
  - {property: silverHorizon, value: 2 days}
  - {property: silverStrategy, value: STRATEGY}
schema:
  - name: samples
    logicalType: object
    properties:
      - {name: device, logicalType: integer, required: true, primaryKey: true, primaryKeyPosition: 1}
      - {name: level, logicalType: number, required: true, primaryKey: true, primaryKeyPosition: 2}
      - name: when
        logicalType: object
        properties: [{name: at, logicalType: timestamp}, {name: note, logicalType: string}]
      - {name: cost, logicalType: number, physicalType: "decimal(38,10)"}
      - {name: ratio, logicalType: number, physicalType: float}
      - name: tags
        logicalType: map
        map: {key: {logicalType: string}, value: {logicalType: string, physicalType: scalar}}
      - {name: list, logicalType: array, items: {logicalType: number}}
"""


def sample(device: int, day: int, **changes: str) -> str:
    """Return a record from JSON texts."""
    record = {"device": str(device), "level": "0.0", "when": json.dumps({"at": f"2026-01-{day:02}T12:00:00Z"})}
    record |= {"cost": "12.5", "tags": '{"a": 1, "b": null}'} | changes
    return "{" + ", ".join(f'"{name}": {text}' for name, text in record.items()) + "}"


NO_TIME = '{"at": null}'
MICRO_BATCHES = [
    # The last two have no event time: they are never late, and known forever.
    [sample(1, 10), sample(2, 10), sample(3, 10), sample(4, 10), sample(8, 1, when=NO_TIME), sample(9, 1, when="null")],
    [
        # Duplicates: maps in another order, a zero of another sign, a number with other digits.
        sample(1, 10, tags='{"b": null, "a": 1}'),
        sample(2, 10, level="-0.0"),
        sample(3, 10, cost="12.500"),
        # Conflicts.
        sample(3, 10, tags='{"a": 1}'),
        sample(4, 10, list="[1, null]"),
        # Too old, and just in time.
        sample(5, 7),
        sample(6, 8),
    ],
    # Conflicts, since the event time is part of the content.
    [sample(1, 20), sample(1, 20, ratio="0.1"), sample(7, 12)],
    # The rows that were kept before are behind the horizon: kept again, its duplicate, late, kept again.
    [sample(2, 18), sample(2, 18), sample(3, 10), sample(1, 20)],
    # Again without event time: keys first kept without one, and keys kept with a time before the horizon.
    [sample(8, 1, when=NO_TIME), sample(9, 20), sample(7, 1, when=NO_TIME), sample(4, 1, when=NO_TIME)],
]
COUNTS: dict[str, Any] = {"kept": 12, "duplicates": 5, "conflicts": 5, "late": 2}


@pytest.mark.parametrize(
    ("strategy", "together"),
    [only_with_all("merge", True), pytest.param("merge", False, marks=pytest.mark.long), ("state", False)],
)
def test_it_is_clean(
    lake_settings: Settings,
    drain_directly: Drain,
    session_of: SessionOf,
    tmp_path: Path,
    strategy: str,
    together: bool,
) -> None:
    """Verify is clean with each strategy, whether micro-batches are decided one by one or together."""
    (tmp_path / "samples.yaml").write_text(CONTRACT.replace("STRATEGY", strategy))
    settings = changed(lake_settings, LAKE_CONTRACTS=tmp_path)
    landing = settings.home / "landing" / "samples"
    landing.mkdir(parents=True)
    for number, records in enumerate(MICRO_BATCHES):
        (landing / f"{number}.json").write_text(f"[{', '.join(records)}]")
        drain_directly(settings, "samples")
        if not together:
            decide_all(session_of(settings), settings, "samples")
    decide_all(session_of(settings), settings, "samples")
    with connect(settings) as session:
        (found,) = silver.check(Scope(settings, session, "samples"))
    assert (found.findings, found.problems, found.waiting) == ((), (), 0)
    assert found.facts["verdicts"] == COUNTS
