"""Judged units as plain dictionaries, for tests that compare them."""

from collections.abc import Iterable
from typing import Any

from lakeproof.judge.judged import Judged


def units_of(found: Iterable[Judged]) -> list[dict[str, Any]]:
    """Return judged units by position: the contract's fields, ``_position``, ``reasons``, ``raw`` and, depending on the
    policy, ``_rescued`` and ``_drift``. Fields that do not apply are None.
    """
    units: list[dict[str, Any]] = []
    for judged in found:
        good, bad = judged.good, judged.bad
        drift = {"_rescued": good.rescued, "_drift": good.drift}
        columns = {
            name: column.to_pylist(maps_as_pydicts="strict") for name, column in drift.items() if column is not None
        }
        for index, values in enumerate(good.values.to_pylist(maps_as_pydicts="strict")):
            more = {name: column[index] for name, column in columns.items()}
            units.append(values | more | {"_position": good.positions[index].as_py(), "reasons": None, "raw": None})
        nothing = dict.fromkeys([*good.values.schema.names, *columns])
        dead = zip(bad.positions.to_pylist(), bad.reasons.to_pylist(), bad.raw.to_pylist(), strict=True)
        units += [nothing | {"_position": position, "reasons": reasons, "raw": raw} for position, reasons, raw in dead]
    return sorted(units, key=lambda unit: unit["_position"])
