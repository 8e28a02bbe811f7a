"""Compatibility of two contracts, in the terms of a schema registry.

Backward compatible: a reader with the new contract accepts data of the old one. Forward compatible: a reader with the
old contract accepts data of the new one. Unknown fields do not count as accepted, nor do rescued or discarded values:
the compatibility of fields does not depend on the drift policy. A change of the policy is reported separately.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from lakeproof.contracts.contract import Contract
from lakeproof.contracts.duration import duration_text, horizon_text
from lakeproof.contracts.model import (
    Bound,
    Breaker,
    Constraints,
    DecimalType,
    DriftPolicy,
    Field,
    Landing,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
    Retention,
    TimeForm,
    Type,
    type_name,
)

_LACKED = "existing rows may not have it"
_WIDER = {
    (PrimitiveType.INT, PrimitiveType.LONG),
    (PrimitiveType.FLOAT, PrimitiveType.DOUBLE),
    (PrimitiveType.STRING, PrimitiveType.SCALAR),
}

_BECOMES = {
    DriftPolicy.FREEZE: "make a dead letter",
    DriftPolicy.RESCUE: "are kept in _rescued",
    DriftPolicy.DISCARD: "are dropped and only counted",
}


@dataclass(frozen=True)
class Change:
    """A difference between two contracts."""

    field: str  # like ``event.page``; empty for the contract itself
    what: str
    backward: bool
    forward: bool
    obstacle: str = ""  # why a table with rows cannot follow the change; empty if it can


class Compatibility(StrEnum):
    """Compatibility of a set of changes."""

    FULL = "full"
    BACKWARD = "backward"
    FORWARD = "forward"
    BREAKING = "breaking"


def compatibility(found: tuple[Change, ...]) -> Compatibility:
    """Compatibility of all `found` changes together."""
    backward = all(change.backward for change in found)
    forward = all(change.forward for change in found)
    if backward:
        return Compatibility.FULL if forward else Compatibility.BACKWARD
    return Compatibility.FORWARD if forward else Compatibility.BREAKING


def changes(old: Contract, new: Contract) -> tuple[Change, ...]:
    """List the differences, in the order of old fields, then new ones. Versions are not compared."""
    return tuple(_of_contract(old, new))


def _of_contract(old: Contract, new: Contract) -> Iterator[Change]:
    if old.stream != new.stream:
        yield _breaking("", f"stream {old.stream} → {new.stream}: other tables", "another stream has other tables")
    if old.primary_key != new.primary_key:
        before, after = (", ".join(each.primary_key) or "none" for each in (old, new))
        obstacle = "existing rows are identified by the old one" if old.primary_key else ""
        yield _breaking("", f"primary key {before} → {after}: other identities", obstacle)
    if old.event_time != new.event_time:
        what = f"event time {old.event_time} → {new.event_time}: other partitions"
        yield _breaking("", what, "the table is partitioned by the old one")
    if old.drift is not new.drift:
        # With other policies, data may contain what `freeze` refuses.
        yield Change(
            "",
            f"drift policy {old.drift} → {new.drift}: values that do not fit {_BECOMES[new.drift]}",
            backward=new.drift is not DriftPolicy.FREEZE,
            forward=old.drift is not DriftPolicy.FREEZE,
        )
    yield from _of_silver(old, new)
    if old.breaker != new.breaker:
        yield _compatible(f"breaker {_breaker(old.breaker)} → {_breaker(new.breaker)}: same records and dead letters")
    if old.retention != new.retention:
        yield _compatible(f"retention {_retention(old.retention)} → {_retention(new.retention)}: same records")
    if old.maintenance != new.maintenance:
        yield _compatible(f"maintenance {old.maintenance} → {new.maintenance}: same records and dead letters")
    if old.landing != new.landing:
        yield _compatible(f"landed files {_landing(old.landing)} → {_landing(new.landing)}: records as before")
    yield from _of_fields(old.fields, new.fields, "")
    yield from _of_rules(old, new)


def _of_silver(old: Contract, new: Contract) -> Iterator[Change]:
    """Changes of silver: records are judged as before, so the contracts are compatible."""
    before, after = old.silver, new.silver
    if before is None or after is None:
        if before is not after:
            yield _compatible(f"silver removed: {new.no_silver}" if before else "silver added")
        return
    if before.horizon != after.horizon:
        what = f"silver horizon {horizon_text(before.horizon)} → {horizon_text(after.horizon)}: other late records"
        yield _compatible(what)
    if before.strategy is not after.strategy:
        yield _compatible(f"silver strategy {before.strategy} → {after.strategy}: same records, found in another way")


def _breaker(breaker: Breaker) -> str:
    over = f" or {duration_text(breaker.over)}" if breaker.over else ""
    return f"{breaker.action} at {breaker.share:f} of {breaker.units} units of a micro-batch{over}"


def _retention(retention: Retention | None) -> str:
    retention = retention or Retention()
    ages = {
        "landed files": retention.landed,
        "closed dead letters": retention.dead_letters,
        "conflicts": retention.conflicts,
        "late rows": retention.late,
    }
    said = [f"of {what} {duration_text(age)}" for what, age in ages.items() if age is not None]
    archived = f", archived in {retention.archive}" if retention.archive else ""
    return f"{', '.join(said) or 'unbounded'}{archived}"


def _landing(landing: Landing) -> str:
    include, exclude = (", ".join(globs) for globs in (landing.include, landing.exclude))
    what = f"{include or 'all'}{f' but {exclude}' if exclude else ''}"
    return f"{what} in {landing.location}" if landing.location else what


def _of_fields(old: tuple[Field, ...], new: tuple[Field, ...], within: str) -> Iterator[Change]:
    by_name = {name: field for field in new for name in (*field.former_names, field.name)}
    for field in old:
        successor = by_name.get(field.name)
        if successor is None:
            yield _removed(field, within + field.name)
        else:
            yield from _of_names(field, successor, within + successor.name)
            yield from _of_field(field, successor, within + successor.name)
    before = {field.name for field in old}
    for field in new:
        if before.isdisjoint((*field.former_names, field.name)):
            yield _added(field, within + field.name)


def _removed(field: Field, path: str) -> Change:
    if field.dropped:
        return Change(path, "dropped field removed", True, True, "its column stays, so the contract keeps the field")
    obstacle = "its column stays: deprecate the field, then drop it"
    if field.derived:
        return Change(path, "derived field removed", True, True, obstacle)
    return Change(path, f"{_need(field)} field removed", False, not field.required, obstacle)


def _added(field: Field, path: str) -> Change:
    if field.dropped:
        return Change(path, "dropped field added", True, True)
    obstacle = _LACKED if field.required else ""
    if field.derived:
        return Change(path, "derived field added", True, True, obstacle)
    return Change(path, f"{_need(field)} field added", not field.required, False, obstacle)


def _of_names(old: Field, new: Field, path: str) -> Iterator[Change]:
    """Renamed fields: new fields for readers, the same columns for tables."""
    expected = old.former_names
    if old.name != new.name:
        expected = (*expected, old.name)
        # Dropped fields are in no records.
        same = old.dropped and new.dropped
        yield Change(path, f"renamed from {old.name}", same, same)
    if new.former_names != expected:
        names = f"[{', '.join(expected)}]" if expected else "none"
        obstacle = f"former names stay: expected renamedFrom {names}"
        yield Change(path, "former names changed", True, True, obstacle)


def _of_field(old: Field, new: Field, path: str) -> Iterator[Change]:
    if old.deprecated != new.deprecated and not new.dropped:  # dropped fields were deprecated before
        yield Change(path, "deprecated" if new.deprecated else "no longer deprecated", True, True)
    if old.dropped or new.dropped:
        yield from _of_dropped(old, new, path)
        return
    if old.derived != new.derived:
        what = f"derived from {old.derived or 'records'} → {new.derived or 'records'}"
        yield _breaking(path, what, "existing rows have the old values")
        return
    if old.required != new.required:
        what = f"{_need(old)} → {_need(new)}"
        yield Change(path, what, old.required, new.required, _LACKED if new.required else "")
    if old.description != new.description:
        yield Change(path, "description changed", backward=True, forward=True)
    different = list(_of_type(old.type, new.type, path))
    yield from different
    if any(change.field == path and not change.backward and not change.forward for change in different):
        return  # a different kind of type
    if old.time != new.time:
        # Tables contain times, so their format does not matter.
        what = f"format {old.time} → {new.time}"
        yield Change(path, what, accepts_times(new.time, old.time), accepts_times(old.time, new.time))
    yield from _of_allowed(set(old.allowed), set(new.allowed), path)
    yield from _of_constraints(old.constraints, new.constraints, path)
    if old.expected != new.expected:
        # Anomalies are valid data, so both contracts accept the same records.
        yield Change(path, f"anomalies {old.expected} → {new.expected}", backward=True, forward=True)


def _of_dropped(old: Field, new: Field, path: str) -> Iterator[Change]:
    """Changes of a field that at least one of the contracts drops."""
    if not old.dropped:
        obstacle = "" if old.deprecated else "deprecate it first, and drop it in the next version"
        yield Change(path, f"{_need(old)} field dropped", False, not old.required, obstacle)
    elif not new.dropped:
        yield Change(path, f"{_need(new)} field restored", not new.required, False, _LACKED if new.required else "")
    if old.description != new.description:
        yield Change(path, "description changed", True, True)
    for change in _of_type(old.type, new.type, path):
        yield replace(change, backward=True, forward=True)


def _of_type(old: Type, new: Type, path: str) -> Iterator[Change]:
    match old, new:
        case ObjectType(), ObjectType():
            yield from _of_fields(old.fields, new.fields, f"{path}.")
        case ListType(), ListType():
            yield from _of_type(old.item, new.item, f"{path}[]")
        case MapType(), MapType():
            yield from _of_type(old.value, new.value, f"{path}.*")
        case _ if old != new:
            wider, narrower = _widens(old, new), _widens(new, old)
            word = "widened" if wider else "narrowed" if narrower else "changed"
            obstacle = "" if wider else f"existing rows have {type_name(old)}, which can only be widened"
            yield Change(path, f"type {word}: {type_name(old)} → {type_name(new)}", wider, narrower, obstacle)


def _widens(old: Type, new: Type) -> bool:
    """Whether the new type includes all values of the old one, in tables too."""
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale == new.scale and old.precision < new.precision
    return (old, new) in _WIDER


def accepts_times(reader: TimeForm, writer: TimeForm) -> bool:
    """Whether the form `reader` includes all times of another form `writer`: the offset may have become optional."""
    pattern = str(writer.format).removesuffix("XXX")
    same_zone = writer.format.has_offset or reader.zone == writer.zone
    return reader.format == f"{pattern}[XXX]" and same_zone


def _of_allowed(old: set[str], new: set[str], path: str) -> Iterator[Change]:
    if old and not new:
        yield Change(path, "any value allowed", backward=True, forward=False)
    elif new and not old:
        yield Change(path, f"only {', '.join(sorted(new))} allowed", backward=False, forward=True)
    else:
        if added := new - old:
            yield Change(path, f"allowed values added: {', '.join(sorted(added))}", backward=True, forward=False)
        if removed := old - new:
            yield Change(path, f"allowed values removed: {', '.join(sorted(removed))}", backward=False, forward=True)


def _of_constraints(old: Constraints, new: Constraints, path: str) -> Iterator[Change]:
    for name, before, after, tighter in (
        ("minimum", old.minimum, new.minimum, _is_tighter(old.minimum, new.minimum, upwards=True)),
        ("maximum", old.maximum, new.maximum, _is_tighter(old.maximum, new.maximum, upwards=False)),
        ("minLength", old.min_length or 0, new.min_length or 0, (new.min_length or 0) > (old.min_length or 0)),
        ("maxLength", old.max_length, new.max_length, _most(new.max_length) < _most(old.max_length)),
    ):
        if before != after:
            word = "tightened" if tighter else "loosened"
            yield Change(path, f"{name} {word}", backward=not tighter, forward=tighter)
    if old.pattern != new.pattern:
        word = "added" if old.pattern is None else "removed" if new.pattern is None else "changed"
        yield Change(path, f"pattern {word}", backward=new.pattern is None, forward=old.pattern is None)


def _of_rules(old: Contract, new: Contract) -> Iterator[Change]:
    before, after = ({rule.name: rule for rule in contract.rules} for contract in (old, new))
    for name, rule in before.items():
        if name not in after:
            yield Change("", f"rule {name} removed: loosened", backward=True, forward=False)
        elif rule.condition != after[name].condition:
            yield _breaking("", f"rule {name} changed")
        elif rule != after[name]:
            yield Change("", f"description of the rule {name} changed", backward=True, forward=True)
    for name in after:
        if name not in before:
            yield Change("", f"rule {name} added: tightened", backward=False, forward=True)


def _is_tighter(old: Bound | None, new: Bound | None, upwards: bool) -> bool:
    if old is None or new is None:
        return old is None
    if old.value == new.value:
        return new.exclusive
    is_higher: bool = new.value > old.value  # type: ignore[operator]  # both are of the field's type
    return is_higher == upwards


def _most(length: int | None) -> float:
    return math.inf if length is None else length


def _need(field: Field) -> str:
    return "required" if field.required else "optional"


def _compatible(what: str) -> Change:
    return Change("", what, backward=True, forward=True)


def _breaking(path: str, what: str, obstacle: str = "") -> Change:
    return Change(path, what, backward=False, forward=False, obstacle=obstacle)
