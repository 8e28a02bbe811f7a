"""Expected results of replaying dead letters: a model that shares no code with the consumer."""

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from lakeproof.reasons import Reason
from producer.batches import Batch, Record
from producer.encoding import JsonStyle, join_records

Place = tuple[str, int]
"""Source, position."""
Key = tuple[str, int, int]
"""Source, position and attempt of a dead letter."""
Tried = tuple[str, int, int, int, str]
"""Source, position and attempt of a dead letter, the attempt to replay it, and its outcome."""

MAX_ATTEMPTS = 2
_EACH = 3
_TYPES = (b'"event_type":"page_view"', b'"event_type":"purchase"')


@dataclass(frozen=True)
class _Unit:
    """A record: the kind that must be allowed to make it valid; `broken` records never are."""

    needs: str | None = None
    broken: bool = False


@dataclass
class _Letter:
    """A dead letter: a record, or a batch with the complete records at its beginning."""

    unit: _Unit
    records: list[_Unit] | None = None
    tries: int = 0
    outcome: str = ""


@dataclass
class Letters:
    """The dead letters of a lake.

    Attributes
    ----------
    bronze, left
        Rows that replays have appended to bronze, and remaining parts of batches appended to the dead letters.
    tried
        Rows of the table of attempts.
    """

    bronze: Counter[Place] = field(default_factory=Counter)
    left: Counter[Place] = field(default_factory=Counter)
    tried: Counter[Tried] = field(default_factory=Counter)
    _allowed: set[str] = field(default_factory=set)
    _letters: dict[Key, _Letter] = field(default_factory=dict)

    def allow(self, kind: str) -> None:
        """Let the contract accept a kind of events from now on."""
        self._allowed.add(kind)

    def landed(self, source: str, batch: Batch, kind: str | None = None) -> None:
        """Record the dead letters of a batch; `kind` is the kind that :func:`of_kind` gave to some records."""
        if batch.corrupt:
            complete = len(list(_records(batch.data)))
            units = [_unit(record, kind) for record in batch.records[:complete]]
            self._letters[source, 0, 1] = _Letter(_Unit(broken=True), units)
            return
        for position, record in enumerate(batch.records):
            if record.reasons:
                self._letters[source, position, 1] = _Letter(_unit(record, kind))

    def open(self) -> set[Key]:
        """Return the dead letters that a replay would take."""
        return {key for key, letter in self._letters.items() if letter.outcome in ("", "failed")}

    def replayed(self, taken: Iterable[Key] | None = None) -> None:
        """Record one replay with ``--salvage`` of all open dead letters, or of some."""
        for key in self.open() if taken is None else taken:
            (source, position, attempt), letter = key, self._letters[key]
            letter.tries += 1
            if self._passes(letter.unit):
                self.bronze[source, position] += 1
                letter.outcome = "closed"
            elif letter.records:
                self._split(source, letter.records)
                letter.outcome = "closed"
            else:
                letter.outcome = "parked" if letter.tries >= MAX_ATTEMPTS else "failed"
            self.tried[source, position, attempt, letter.tries + 1, letter.outcome] += 1

    def _split(self, source: str, records: list[_Unit]) -> None:
        for position, unit in enumerate(records):
            if self._passes(unit):
                self.bronze[source, position] += 1
            else:
                self._leave(source, position, unit)
        self._leave(source, len(records), _Unit(broken=True))

    def _leave(self, source: str, position: int, unit: _Unit) -> None:
        self.left[source, position] += 1
        self._letters[source, position, 2] = _Letter(unit)

    def _passes(self, unit: _Unit) -> bool:
        return not unit.broken and unit.needs in {None, *self._allowed}


def of_kind(batch: Batch, kind: str, every: int = _EACH) -> Batch:
    """Return the batch with every n-th record, if valid, changed to a kind that the contract does not allow.

    A batch that was cut short is cut in its second half.
    """
    records = [
        _with_kind(record, kind) if number % every == 0 else record for number, record in enumerate(batch.records)
    ]
    data = join_records([record.data for record in records], JsonStyle.COMPACT)
    if batch.corrupt:
        data = data[: len(data) // 2 + zlib.crc32(data) % (len(data) // 4)]
    return replace(batch, data=data, records=tuple(records))


def _with_kind(record: Record, kind: str) -> Record:
    data = record.data
    for known in _TYPES:
        data = data.replace(known, f'"event_type":"{kind}"'.encode())
    if record.reasons or data == record.data:
        return record
    return replace(record, data=data, reasons=(Reason.NOT_ALLOWED,))


def _unit(record: Record, kind: str | None) -> _Unit:
    # The producer breaks records in other ways.
    return _Unit(kind) if record.reasons == (Reason.NOT_ALLOWED,) else _Unit(broken=bool(record.reasons))


def _records(data: bytes) -> Iterator[object]:
    """Yield the complete records at the beginning of an array that was cut short."""
    text, position = data.decode(errors="replace"), 1
    while True:
        try:
            record, position = json.JSONDecoder().raw_decode(text, position)
        except ValueError:
            return
        if not isinstance(record, dict):
            return
        yield record
        position += 1  # the comma
