"""Describe observed values as the properties of a contract, with notes on what is uncertain.

All observed values fit, except for tolerated ones and those of fields where null is allowed; the latter need the drift
policy ``rescue``.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from lakeproof.contracts.infer.observed import MAX_VALUES, TIMES, Observed, Token
from lakeproof.contracts.model import TimeFormat
from lakeproof.contracts.times import FORMAT, ZONE
from lakeproof.documents.names import is_identifier

Property = dict[str, Any]  # a property of the Open Data Contract Standard, or the type of items or map values

_SCALAR: Property = {"logicalType": "string", "physicalType": "scalar"}
_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
MIN_FOR_ENUM = 50
MIN_FOR_EACH = 10
_LONGEST_IN_ENUM = 40
_MIN_FOR_MAP = 30
_MONEY = range(1, 5)
_MIN_FOR_MONEY = 10
_MAX_SHOWN = 60
_LIKE_A_TIME = re.compile(r"time|stamp|date|epoch|^ts$|_(ts|at)(_m?s|_us)?$|At$", re.IGNORECASE)
_NUMBERS = {Token.LONG, Token.WHOLE, Token.NUMBER}
_UNITS = {TimeFormat.EPOCH_S: "seconds", TimeFormat.EPOCH_MS: "milliseconds", TimeFormat.EPOCH_US: "microseconds"}
_OPTIONAL_OFFSET = {
    TimeFormat.T_ANY: {Token.TIMESTAMP, Token.LOCAL},
    TimeFormat.SPACE_ANY: {Token.SPACED, Token.SPACED_LOCAL},
}
# Kinds of values by type, narrowest first.
_TOGETHER: tuple[set[Token], ...] = (
    {Token.BOOLEAN},
    _NUMBERS,
    *({kind} for kind in TIMES),
    *_OPTIONAL_OFFSET.values(),
    {Token.TEXT, Token.UUID, *TIMES},
)


@dataclass(frozen=True)
class TimeOfField:
    """How to declare a field as a timestamp."""

    described: Property
    options: dict[str, str]
    note: str
    always: bool
    deviates: bool  # whether some values do not fit the time format


@dataclass
class Draft:
    """The properties of a contract under construction."""

    tolerate: Fraction = Fraction(0)  # the share of values that may have another type
    deviates: bool = False
    # Paths of fields that could be timestamps.
    possible: dict[str, TimeOfField] = field(default_factory=dict)
    proposed: set[str] = field(default_factory=set)  # paths of timestamps whose format has to be confirmed
    # Uncertainties: the path of a field and a sentence.
    notes: list[tuple[str, str]] = field(default_factory=list)
    drifts: bool = False  # whether some values fit no field and have to be rescued
    # Paths of timestamps outside arrays and maps, and whether each record has them.
    timestamps: dict[str, bool] = field(default_factory=dict)
    _forms: dict[str, tuple[dict[str, str], str, bool]] = field(default_factory=dict)

    def properties(self, seen: Observed, path: str = "", always: bool = True) -> list[Property]:
        """Describe the fields of objects."""
        found = []
        for name, each in self._possible(seen, path).items():
            at = f"{path}.{name}" if path else name
            required = each.values == seen.objects and not each.nulls and self._fits(each)
            kind = self._type(each, at, always and required)
            if kind is None:
                continue
            inner = {key: kind.pop(key) for key in ("properties", "items", "map") if key in kind}
            property_: Property = {"name": name} | kind | ({"required": True} if required else {}) | inner
            if kind.get("logicalType") == "timestamp" and _is_outside(at):
                self.timestamps[at] = always and required
            elif at in self._forms:
                options, note, deviates = self._forms[at]
                self.possible[at] = TimeOfField(property_, options, note, always and required, deviates)
            self._constrain(property_, each, at)
            found.append(property_)
        return found

    def use_as_time(self, path: str) -> None:
        """Declare a candidate field as a timestamp."""
        found = self.possible.pop(path)
        for key in ("physicalType", "enum"):
            found.described.pop(key, None)
        found.described.update(logicalType="timestamp", logicalTypeOptions=found.options)
        self.timestamps[path] = found.always
        self.proposed.add(path)
        self.notes.append((path, found.note))
        self.deviates |= found.deviates

    def leave_day_of(self, event_time: str, properties: list[Property]) -> None:
        """Leave out the field whose name the partition of the tables has, once the event time is chosen."""
        *within, name = event_time.split(".")
        for step in within:
            properties = next(each for each in properties if each["name"] == step)["properties"]
        day = next((each for each in properties if each["name"] == f"{name}_day"), None)
        if day is not None:
            properties.remove(day)
            path = f"{event_time}_day"
            self.notes = [note for note in self.notes if note[0] != path]
            self._leave(path, f"the tables have a partition with this name, the day of {event_time}")

    def _possible(self, seen: Observed, path: str) -> dict[str, Observed]:
        """Fields with names that are valid for columns."""
        folded: dict[str, str] = {}
        for name in sorted(seen.fields, key=lambda each: -seen.fields[each].values):
            at = f"{path}.{name}" if path else name
            if not is_identifier(name):
                self._leave(at, "the name cannot be that of a column")
            elif name.lower() in folded:
                self._leave(at, f"{folded[name.lower()]} would be the same column")
            else:
                folded[name.lower()] = name
        kept = {*folded.values()}
        return {name: each for name, each in seen.fields.items() if name in kept}

    def _leave(self, path: str, why: str) -> None:
        self.drifts = True
        self.notes.append((_short(path), f"not described, because {why}. Its values go to _rescued."))

    def _type(self, seen: Observed, path: str, always: bool) -> Property | None:
        """The type of observed values; None if none fits."""
        counts = Counter(
            {"objects": seen.objects, "arrays": seen.arrays, "scalars": sum(seen.tokens.values())}
        ).most_common()
        (most, count), *others = counts
        if seen.is_too_deep:
            self._leave(path, "it is nested too deeply")
            return None
        if count == 0:
            self.notes.append((path, "only null was seen. Any scalar is allowed."))
            return dict(_SCALAR)
        rest = sum(other for _, other in others)
        if rest and self._is_tolerated(rest, count + rest):
            what = " and ".join(f"{other:,} {kind}" for kind, other in others if other)
            self._deviate(path, rest, count + rest, what)
        elif rest:
            self.drifts = True
            what = " and ".join(kind for kind, other in others if other)
            self.notes.append((path, f"{count:,} values are {most}, and {rest:,} are {what}, which go to _rescued."))
        match most:
            case "objects":
                return self._object(seen, path, always)
            case "arrays":
                return self._array(seen, path)
        return self._scalar(seen, path)

    def _object(self, seen: Observed, path: str, always: bool) -> Property | None:
        if seen.fields and not self._is_map(seen):
            properties = self.properties(seen, path, always)
            if properties:
                return {"logicalType": "object", "properties": properties}
            self._leave(path, "none of its fields can be described")
            return None
        if not seen.fields and not seen.entries:
            self.notes.append((path, "only empty objects were seen. It is a map of any scalars."))
            return {"logicalType": "map", "map": _map_of(dict(_SCALAR))}
        entries = seen.merged()
        value = self._type(entries, f"{path}.*", False)
        if value is None:
            return None
        keys = f"{len(seen.fields)} different" if seen.fields else "very many"
        self.notes.append(
            (path, f"objects with {keys} keys. It is a map; change it to an object if the keys are fixed.")
        )
        return {"logicalType": "map", "map": _map_of(value)}

    def _is_map(self, seen: Observed) -> bool:
        """Whether objects are maps: keys are not identifiers, or there are many rare keys."""
        keys = sum(each.values for each in seen.fields.values())
        many = len(seen.fields) > _MIN_FOR_MAP and keys < len(seen.fields) * seen.objects / 4
        odd = not all(map(is_identifier, seen.fields)) or len({name.lower() for name in seen.fields}) < len(seen.fields)
        if not (many or odd):
            return False
        trial = Draft()
        described = trial._type(seen.merged(), "", False)
        return described is not None and not trial.drifts

    def _array(self, seen: Observed, path: str) -> Property | None:
        items = seen.items or Observed()
        if not items.values:
            self.notes.append((path, "only empty arrays were seen. Its items can be any scalars."))
            return {"logicalType": "array", "items": dict(_SCALAR)}
        item = self._type(items, f"{path}[]", False)
        return None if item is None else {"logicalType": "array", "items": item}

    def _scalar(self, seen: Observed, path: str) -> Property:
        kinds = self._usual_kinds(seen, path)
        if epoch := self._epoch(seen, path, kinds):
            return epoch
        if kinds == {Token.LONG}:
            return {"logicalType": "integer"}
        if kinds == {Token.LONG, Token.WHOLE} or kinds == {Token.WHOLE}:
            self.notes.append((path, "integers of more than 64 bits: decimal(38,0)."))
            return {"logicalType": "number", "physicalType": "decimal(38,0)"}
        if kinds <= _NUMBERS:
            return self._number(seen, path)
        if kinds == {Token.BOOLEAN}:
            return {"logicalType": "boolean"}
        if time := self._time(seen, path, kinds):
            return time
        if seen.time_like:
            why = "it has more than microseconds, or no valid time"
            self.notes.append((path, f"text like {_short(seen.time_like)!r} is no timestamp: {why}."))
        if kinds <= _TOGETHER[-1]:
            self._tell_times(seen, path)
            return {"logicalType": "string"}
        counts = ", ".join(f"{count:,} {kind}" for kind, count in seen.tokens.most_common())
        self.notes.append((path, f"mixed types ({counts}). Each value is kept as its text."))
        return dict(_SCALAR)

    def _tell_times(self, seen: Observed, path: str) -> None:
        """Note why a text field is not a timestamp, if most of its values look like one."""
        total = sum(seen.tokens.values())
        (most, count), *others = seen.tokens.most_common()
        if most in TIMES and others:
            what = ", ".join(f"{other:,} {kind} like {_short(seen.examples[kind])}" for kind, other in others)
            self.notes.append(
                (path, f"{count:,} of {total:,} values are a {most} like {seen.examples[most]}, not: {what}.")
            )

    def _usual_kinds(self, seen: Observed, path: str) -> set[Token]:
        """Return the kinds of scalars, without kinds of tolerated values."""
        total = sum(seen.tokens.values())
        for kinds in _TOGETHER:
            others = {kind: count for kind, count in seen.tokens.items() if kind not in kinds}
            if self._is_tolerated(rest := sum(others.values()), total):
                if others:
                    what = ", ".join(
                        f"{count:,} {kind} like {_short(seen.examples[kind])}" for kind, count in others.items()
                    )
                    self._deviate(path, rest, total, what)
                return {*seen.tokens} & kinds
        return {*seen.tokens}

    def _fits(self, seen: Observed) -> bool:
        """Whether all values are of the described kind: objects, arrays or scalars."""
        counts = (seen.objects, seen.arrays, sum(seen.tokens.values()))
        return sum(counts) > 0 and self._is_tolerated(sum(counts) - max(counts), sum(counts))

    def _is_tolerated(self, rest: int, total: int) -> bool:
        return rest <= self.tolerate * total

    def _deviate(self, path: str, rest: int, total: int, what: str) -> None:
        self.deviates = True
        self.notes.append((path, f"{rest:,} of {total:,} values do not fit: {what}."))

    def _time(self, seen: Observed, path: str, kinds: set[Token]) -> Property | None:
        """A timestamp or date in text; None if the values are something else."""
        found = next((form for form, those in _OPTIONAL_OFFSET.items() if kinds == those), None)
        if found is None and len(kinds) == 1:
            found = TIMES.get(next(iter(kinds)))
        if found in (None, TimeFormat.T_OFFSET):
            return {"logicalType": "timestamp"} if found else None
        example = next(
            seen.examples[kind] for kind in seen.examples if kind in kinds and TIMES[kind] != TimeFormat.T_OFFSET
        )
        if found is TimeFormat.DATE:
            if _is_outside(path):
                note = f"dates like {example} are the midnight in UTC. Confirm the time zone."
                self._forms[path] = ({FORMAT: found.value, ZONE: "UTC"}, note, False)
            return {"logicalType": "date"}
        if not _is_outside(path):
            self.notes.append((path, f"times like {example} are text: items and values of maps have no format."))
            return None
        options = {FORMAT: found.value}
        if found.may_lack_offset:
            options[ZONE] = "UTC"
            self.notes.append((path, f"times like {example} have no UTC offset. Confirm the time zone, UTC."))
            self.proposed.add(path)
        return {"logicalType": "timestamp", "logicalTypeOptions": options}

    def _epoch(self, seen: Observed, path: str, kinds: set[Token]) -> Property | None:
        """A timestamp, if the numbers are times of this century and the name suggests one."""
        if not seen.epochs or not kinds <= _NUMBERS or not _is_outside(path):
            return None
        ((form, count),) = seen.epochs.most_common(1)
        if not self._is_tolerated(sum(seen.tokens.values()) - count, sum(seen.tokens.values())):
            return None
        example, total = seen.epoch_examples[form], sum(seen.tokens[kind] for kind in kinds)
        what = f"{_UNITS[form]} since 1970, {_as_time(example, form)}"
        note = f"numbers like {example} can be {what}. Confirm the format {form}, and the minimum, the year 2000."
        options = {FORMAT: form.value, "minimum": "2000-01-01T00:00:00Z"}
        if count < total:
            note += f" {total - count:,} of {total:,} numbers are not such times{_like(seen.other_number)}."
        if not _LIKE_A_TIME.search(path.rpartition(".")[2]):
            self._forms[path] = (options, note, count < total)
            return None
        self.deviates |= count < total
        self.notes.append((path, note))
        self.proposed.add(path)
        return {"logicalType": "timestamp", "logicalTypeOptions": options}

    def _number(self, seen: Observed, path: str) -> Property:
        if Token.WHOLE in seen.tokens:
            self.notes.append((path, "some integers have more than 64 bits, and are rounded to a double."))
        elif seen.scale in _MONEY and sum(seen.tokens.values()) >= _MIN_FOR_MONEY:
            kind = f"decimal(18,{seen.scale})"
            places = "1 decimal place" if seen.scale == 1 else f"{seen.scale} decimal places"
            self.notes.append((path, f"no number has more than {places}. For exact amounts, use {kind}."))
        return {"logicalType": "number"}

    def _constrain(self, property_: Property, seen: Observed, path: str) -> None:
        """Add the allowed values or the format of a text."""
        count = sum(seen.texts.values())
        if property_.get("logicalType") != "string" or "physicalType" in property_:
            return
        if {*seen.tokens} == {Token.UUID}:
            property_["logicalTypeOptions"] = {"pattern": _UUID}
            self.notes.append((path, "every value is a UUID, so the contract requires one."))
        elif (
            {*seen.tokens} == {Token.TEXT}
            and count == seen.tokens[Token.TEXT] >= MIN_FOR_ENUM
            and 1 < len(seen.texts) <= MAX_VALUES
            and min(seen.texts.values()) >= MIN_FOR_EACH
            and max(map(len, seen.texts)) <= _LONGEST_IN_ENUM
        ):
            property_["enum"] = [{"value": text} for text in sorted(seen.texts)]
            what = f"{len(seen.texts)} different values in {count:,}. No others are allowed."
            self.notes.append((path, f"{what} Remove the enum if there can be more."))


def _as_time(number: str, form: TimeFormat) -> str:
    return f"{datetime.fromtimestamp(int(Decimal(number)) // (form.per_second or 1), UTC):%Y-%m-%dT%H:%M:%SZ}"


def _like(example: str) -> str:
    return f", like {example}" if example else ""


def _is_outside(path: str) -> bool:
    return "[]" not in path and ".*" not in path


def _map_of(value: Property) -> Property:
    return {"key": {"logicalType": "string"}, "value": value}


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
