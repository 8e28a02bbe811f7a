"""Infer the text of a contract from samples."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from lakeproof.contracts.infer.draft import Draft, Property
from lakeproof.contracts.infer.observed import MAX_KEYS, Observed
from lakeproof.contracts.infer.samples import SampleFiles
from lakeproof.errors import UsageError

_FEW_RECORDS = 100
_EVENT_TIME = re.compile(r"event|occur|happen|time|stamp|^ts$|_ts$|_at$|date|creat", re.IGNORECASE)
_KEY = re.compile(r"^(id|key|uuid)$|_(id|key|uuid)$|Id$", re.ASCII)


@dataclass(frozen=True)
class Inferred:
    """An inferred contract."""

    text: str
    fields: int
    records: int
    files: int
    event_time: str
    primary_key: tuple[str, ...]
    # Uncertainties: the path of a field (empty for the contract itself) and a sentence.
    notes: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...]  # units of the samples that no contract accepts, one line each


def infer(
    stream: str,
    path: Path,
    key: Sequence[str],
    event_time: str | None,
    max_records: int,
    tolerate: Fraction = Fraction(0),
) -> Inferred:
    """Infer the contract of a stream from a file or folder of samples."""
    samples = SampleFiles(path, max_records)
    records, uniqueness = Observed(), _Uniqueness(key)
    for record in samples.read():
        records.add(record)
        uniqueness.add(record)
    if not samples.records:
        why = f" {samples.left_out[0]}." if samples.left_out else ""
        raise UsageError(f"No records found in {path}.{why}", "Use a file of JSON objects: an array, or one per line.")
    if records.entries:
        raise UsageError(
            f"The records have more than {MAX_KEYS} different fields.",
            "The fields of a record have fixed names. Put the others into one object, which becomes a map.",
        )
    draft = Draft(tolerate)
    properties = draft.properties(records)
    chosen = _event_time(draft, event_time)
    draft.leave_day_of(chosen, properties)
    notes = draft.notes
    _mark_key(properties, key, notes)
    notes += uniqueness.notes(properties)
    if samples.records < _FEW_RECORDS:
        notes.append(("", f"there are only {samples.records:,} records. A field is required if each of them has it."))
    if samples.is_cut:
        notes.append(("", f"only the first {max_records:,} records were read. Use --max-records to read more."))
    if draft.deviates:
        text = "values that do not fit make dead letters. --tolerate 0% infers types that all values have."
        notes.append(("", text))
    customs = [{"property": "eventTime", "value": chosen}]
    if draft.drifts:
        customs.append({"property": "driftPolicy", "value": "rescue"})
        notes.append(("", "some values do not fit any type, so the drift policy is rescue."))
    document = {
        "apiVersion": "v3.2.0",
        "kind": "DataContract",
        "id": stream,
        "name": stream,
        "version": "1.0.0",
        "status": "draft",
        "customProperties": customs,
        "schema": [{"name": stream, "logicalType": "object", "properties": properties}],
    }
    return Inferred(
        text=_text(document),
        fields=len(properties),
        records=samples.records,
        files=samples.files,
        event_time=chosen,
        primary_key=tuple(key),
        notes=tuple(notes),
        left_out=tuple(samples.left_out),
    )


class _Uniqueness:
    """Tracks which fields are unique."""

    def __init__(self, key: Sequence[str]) -> None:
        self._key = tuple(key)
        self._keys: set[Any] = set()
        self._repeated = 0
        self._count = 0
        self._seen: dict[str, set[Any]] = {}
        self._not_unique: set[str] = set()

    def add(self, record: dict[str, Any]) -> None:
        self._count += 1
        if self._key:
            key = tuple(str(record.get(name)) for name in self._key)
            self._repeated += key in self._keys
            self._keys.add(key)
            return
        for name, value in record.items():
            if name not in self._not_unique and _KEY.search(name) and isinstance(value, str):
                seen = self._seen.setdefault(name, set())
                if value in seen:
                    self._not_unique.add(name)
                    del self._seen[name]
                seen.add(value)

    def notes(self, properties: list[Property]) -> list[tuple[str, str]]:
        if self._repeated:
            what = f"{self._repeated:,} records repeat the key of another one."
            return [(", ".join(self._key), f"{what} In silver, they are duplicates or conflicts.")]
        if self._key:
            return []
        names = [property_["name"] for property_ in properties if property_.get("required")]
        unique = next((name for name in names if len(self._seen.get(name, ())) == self._count), None)
        what = f" {unique} is different in each record: use --key {unique} if it identifies one." if unique else ""
        return [("", f"there is no primary key, and therefore no silver.{what}")]


def _mark_key(properties: list[Property], key: Sequence[str], notes: list[tuple[str, str]]) -> None:
    by_name = {property_["name"]: property_ for property_ in properties}
    for position, name in enumerate(key, 1):
        property_ = by_name.get(name)
        if property_ is None:
            raise UsageError(f"--key {name}: there is no such field.", f"Fields: {', '.join(by_name)}.")
        if property_["logicalType"] in ("object", "array", "map"):
            raise UsageError(f"--key {name}: the field is an {property_['logicalType']}.", "Use a scalar field.")
        if not property_.get("required"):
            notes.append((name, "not every record has this field of the key, so there is no silver."))
        property_ |= {"primaryKey": True, "primaryKeyPosition": position}


def _event_time(draft: Draft, asked: str | None) -> str:
    found = draft.timestamps
    if asked is not None:
        if asked in draft.possible:
            draft.use_as_time(asked)
        if asked in found:
            return asked
        note = next((text for path, text in draft.notes if path == asked), "")
        known = ", ".join([*found, *draft.possible]) or "none"
        raise UsageError(
            f"--event-time {asked}: too few values are a timestamp{f': {note}' if note else '.'}",
            f"Fields of the samples that can be: {known}. See docs/contracts/schema.md#times for the forms.",
        )
    if not found and draft.possible:
        order = list(draft.possible)
        draft.use_as_time(
            min(
                order,
                key=lambda path: (not draft.possible[path].always, not _EVENT_TIME.search(path), order.index(path)),
            )
        )
    if not found:
        like = [f"{path}: {text}" for path, text in draft.notes if "is no timestamp" in text]
        raise UsageError(
            f"No field of the samples is a timestamp. {' '.join(like)}".rstrip(),
            "A stream needs an event time, like 2026-11-21T12:30:00Z. docs/contracts/schema.md#times has other forms.",
        )
    order = list(found)
    chosen = min(
        order,
        key=lambda path: (not found[path], not _EVENT_TIME.search(path), path in draft.proposed, order.index(path)),
    )
    others = ", ".join(path for path in order if path not in (chosen, f"{chosen}_day"))
    if others:
        draft.notes.append(
            (chosen, f"chosen as the event time. Other timestamps: {others}. Use --event-time to choose.")
        )
    elif not found[chosen]:
        draft.notes.append((chosen, "chosen as the event time, but not every record has it."))
    return chosen


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - lists are indented
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - a contract has no aliases
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    """Represent a text, in double quotes if it has a next line (U+0085): without, YAML reads that as a blank."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if "\x85" in text else None)


_Dumper.add_representer(str, _represent_text)


def _text(document: dict[str, Any]) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
