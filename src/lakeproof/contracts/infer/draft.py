"""Describe what was observed as the properties of a contract, and say what that is not sure of.

Every value that was observed fits, or is in a place where null is allowed: then the drift policy has to be ``rescue``.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from lakeproof.contracts.infer.observed import MAX_VALUES, Observed, Token
from lakeproof.contracts.read.names import is_identifier

Property = dict[str, Any]
"""A property of the Open Data Contract Standard, or the type of items or values."""

_SCALAR: Property = {"logicalType": "string", "physicalType": "scalar"}
_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
MIN_FOR_ENUM = 50
MIN_FOR_EACH = 10
_LONGEST_IN_ENUM = 40
_MIN_FOR_MAP = 30
_MONEY = range(1, 5)
_MIN_FOR_MONEY = 10
_MAX_SHOWN = 60


@dataclass
class Draft:
    """The properties of a contract, while they are described.

    Parameters
    ----------
    notes
        What is not certain: the path of a field, and a sentence.
    drifts
        Whether there are values that no field can have, and that have to be rescued.
    timestamps
        Paths of the timestamps that are not inside arrays or maps, and whether each record has them.
    """

    notes: list[tuple[str, str]] = field(default_factory=list)
    drifts: bool = False
    timestamps: dict[str, bool] = field(default_factory=dict)

    def properties(self, seen: Observed, path: str = "", always: bool = True) -> list[Property]:
        """Describe the fields of objects.

        Parameters
        ----------
        seen
            What was observed of the objects.
        path
            Where they are; empty for the records.
        always
            Whether each record has them, for those that are not inside an array or map.
        """
        found = []
        for name, each in self._possible(seen, path).items():
            at = f"{path}.{name}" if path else name
            required = each.values == seen.objects and not each.nulls and _fits(each)
            kind = self._type(each, at, always and required)
            if kind is None:
                continue
            inner = {key: kind.pop(key) for key in ("properties", "items", "map") if key in kind}
            property_: Property = {"name": name} | kind | ({"required": True} if required else {}) | inner
            if kind.get("logicalType") == "timestamp" and _is_outside(at):
                self.timestamps[at] = always and required
            self._constrain(property_, each, at)
            found.append(property_)
        return found

    def _possible(self, seen: Observed, path: str) -> dict[str, Observed]:
        """The fields whose names can be those of columns."""
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
        """The type of what was observed; None if there is none that fits."""
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
        if rest := sum(other for _, other in others):
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
        """Whether objects are rather maps: of keys that are no names, or of many keys of which each has a few."""
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
        kinds = {*seen.tokens}
        if kinds == {Token.LONG}:
            return {"logicalType": "integer"}
        if kinds == {Token.LONG, Token.WHOLE} or kinds == {Token.WHOLE}:
            self.notes.append((path, "integers of more than 64 bits: decimal(38,0)."))
            return {"logicalType": "number", "physicalType": "decimal(38,0)"}
        if kinds <= {Token.LONG, Token.WHOLE, Token.NUMBER}:
            return self._number(seen, path)
        for kind in (Token.BOOLEAN, Token.TIMESTAMP, Token.DATE):
            if kinds == {kind}:
                return {"logicalType": kind.value}
        if seen.time_like:
            self.notes.append((path, f"text like {_short(seen.time_like)!r} is no timestamp: {_why(seen.time_like)}."))
        if kinds <= {Token.TEXT, Token.UUID, Token.TIMESTAMP, Token.DATE}:
            return {"logicalType": "string"}
        said = ", ".join(f"{count:,} {kind}" for kind, count in seen.tokens.most_common())
        self.notes.append((path, f"mixed types ({said}). Each value is kept as its text."))
        return dict(_SCALAR)

    def _number(self, seen: Observed, path: str) -> Property:
        if Token.WHOLE in seen.tokens:
            self.notes.append((path, "some integers have more than 64 bits, and are rounded to a double."))
        elif seen.scale in _MONEY and sum(seen.tokens.values()) >= _MIN_FOR_MONEY:
            kind = f"decimal(18,{seen.scale})"
            self.notes.append(
                (path, f"no number has more than {seen.scale} decimal places. For exact amounts, use {kind}.")
            )
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


def _fits(seen: Observed) -> bool:
    """Whether all values are of the kind that is described."""
    return sum(map(bool, (seen.objects, seen.arrays, sum(seen.tokens.values())))) == 1


def _is_outside(path: str) -> bool:
    return "[]" not in path and ".*" not in path


def _map_of(value: Property) -> Property:
    return {"key": {"logicalType": "string"}, "value": value}


def _why(text: str) -> str:
    if re.search(r"(Z|[+-]\d{2}:?(\d{2})?)$", text) is None:
        return "it has no UTC offset"
    return "it has a space instead of T" if " " in text else "it has more than microseconds, or no valid time"


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
