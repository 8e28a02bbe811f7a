"""What the columns of bronze show about records, for a contract that judges these again."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lakeproof.contracts import (
    ISO_8601,
    Contract,
    DecimalType,
    DriftPolicy,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
    TimeForm,
    Type,
)
from lakeproof.contracts.diff import accepts_times

# Types whose values are written with other texts than landed: 1.0 as 1. So are decimals: 19 as 19.00.
_OTHER_TEXT = (PrimitiveType.FLOAT, PrimitiveType.DOUBLE, PrimitiveType.TIMESTAMP)


@dataclass(frozen=True)
class Reading:
    """How to read rows of bronze that one contract judged, so that another contract can judge them."""

    judged_by: Contract
    contract: Contract  # the other one; expects ISO 8601 where it accepts every time of `judged_by`
    times: dict[str, TimeForm]  # formats for timestamps, by path; ISO 8601 for the others
    unseen: tuple[str, ...]  # what the columns do not show


def reading(judged_by: Contract, contract: Contract, *, discarded: bool = False) -> Reading:
    """Compare the contract that judged rows, and may have `discarded` values, with another one."""
    times: dict[str, TimeForm] = {}
    unseen: list[str] = []
    fields = _fields(judged_by.live, contract.live, "", times, unseen)
    if contract.drift is DriftPolicy.FREEZE:
        unseen += [
            f"{path} is not in the new contract: a record that has it as null would be a dead letter, and counts as "
            "one without it"
            for path in _gone(judged_by.live, contract.live, "")
        ]
    if discarded:
        unseen.append("values that the drift policy discarded are not in bronze: their records count as without them")
    return Reading(judged_by, replace(contract, fields=fields), times, tuple(unseen))


def _fields(
    old: tuple[Field, ...], new: tuple[Field, ...], within: str, times: dict[str, TimeForm], unseen: list[str]
) -> tuple[Field, ...]:
    """Return the new fields, which expect times in the format in which they are written."""
    before = {field.name: field for field in old}
    return tuple(
        _field(before[field.name], field, within + field.name, times, unseen) if field.name in before else field
        for field in new
    )


def _field(old: Field, new: Field, path: str, times: dict[str, TimeForm], unseen: list[str]) -> Field:
    if isinstance(old.type, ObjectType) and isinstance(new.type, ObjectType):
        return replace(new, type=ObjectType(_fields(old.type.fields, new.type.fields, f"{path}.", times, unseen)))
    if new.allowed and (isinstance(new.type, DecimalType) or new.type in _OTHER_TEXT):
        if not old.allowed or not set(old.allowed) <= set(new.allowed):
            unseen.append(f"{path}: whether the text of a value is allowed. Each value counts as allowed")
        new = replace(new, allowed=())
    if PrimitiveType.TIMESTAMP in (old.type, new.type):
        if old.type is new.type and (old.time == new.time or accepts_times(new.time, old.time)):
            return replace(new, time=ISO_8601)
        times[path] = old.time
        if old.time.format.may_lack_offset and old.time.format.endswith("[XXX]"):
            unseen.append(f"{path}: whether a time had a UTC offset. It counts as one without")
    elif any(pair == (PrimitiveType.FLOAT, PrimitiveType.DOUBLE) for pair in _pairs(old.type, new.type)):
        unseen.append(f"{path}: the digits that a float does not keep. 0.1 counts as 0.1")
    return new


def _pairs(old: Type, new: Type) -> Iterator[tuple[Type, Type]]:
    match old, new:
        case ListType(), ListType():
            yield from _pairs(old.item, new.item)
        case MapType(), MapType():
            yield from _pairs(old.value, new.value)
        case _:
            yield old, new


def _gone(old: tuple[Field, ...], new: tuple[Field, ...], within: str) -> Iterator[str]:
    """Yield paths of optional fields that records may have, but that are not in the new contract."""
    after = {field.name: field for field in new}
    for field in old:
        successor = after.get(field.name)
        if successor is None:
            if not field.required:
                yield within + field.name
        elif isinstance(field.type, ObjectType) and isinstance(successor.type, ObjectType):
            yield from _gone(field.type.fields, successor.type.fields, f"{within}{field.name}.")
