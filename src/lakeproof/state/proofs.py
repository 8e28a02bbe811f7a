"""The book of proofs: results of `reader verify` by stream, with the positions and data files that they cover."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Engine, delete, func, select
from sqlalchemy.engine import Row
from sqlalchemy.exc import IntegrityError

from lakeproof.state.database import open_database, transaction
from lakeproof.state.schema import PROOFS, PROVEN_FILES

_P, _F = PROOFS.c, PROVEN_FILES.c
_KEPT_PROOFS = 1_000  # per stream
_ATTEMPTS = 5


class ProofKind(StrEnum):
    """How much data a proof reads."""

    ALL = "all"
    NEW = "new"  # only the data since an earlier proof


class ProofOutcome(StrEnum):
    """The result of a proof."""

    CLEAN = "clean"
    FAILED = "failed"


@dataclass(frozen=True)
class Proof:
    """A run of `reader verify` over one stream; `number` is 0 until it is in the book."""

    stream: str
    kind: ProofKind
    began_at: datetime  # UTC
    proven_at: datetime  # UTC
    proven_by: str  # user@host
    outcome: ProofOutcome
    faults: int
    since: int | None = None  # number of the proof that this one continues
    number: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)  # of the engine and the software it ran with
    reached: Mapping[str, Any] = field(default_factory=dict)  # the position, and the state of the tables

    @property
    def digest(self) -> str:
        """SHA-256 of the content of the proof."""
        told = [self.stream, self.kind, self.since, self.outcome, self.faults, self.versions, self.reached]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class ProvenFile:
    """A data file whose rows were proven: sum of their hashes, and their range of times if compared by time."""

    table: str
    location: str
    tag: str  # of the file and the files that delete its rows
    rows: int
    hash: int
    low: int | None = None
    high: int | None = None


def last_proofs(database: str) -> list[Proof]:
    """Return the newest proof of each stream, clean or not, in order of stream names."""
    newest = select(_P.stream, func.max(_P.number).label("number")).group_by(_P.stream).subquery()
    same = (_P.stream == newest.c.stream) & (_P.number == newest.c.number)
    with transaction(open_database(database)) as connection:
        return [_proof(row) for row in connection.execute(select(PROOFS).join(newest, same).order_by(_P.stream))]


def proofs_of(connection: Connection, stream: str | None = None, most: int | None = None) -> list[Proof]:
    """Return the proofs of all streams or of one, the newest first."""
    if stream is None:
        query = select(PROOFS).order_by(_P.proven_at.desc(), _P.number.desc())
    else:  # the clock may have been set back
        query = select(PROOFS).where(_P.stream == stream).order_by(_P.number.desc())
    return [_proof(row) for row in connection.execute(query.limit(most))]


def last_clean(connection: Connection, stream: str) -> tuple[Proof, list[ProvenFile]] | None:
    """Return the newest clean proof of a stream and the data files of its tables then; None without a clean proof."""
    newest = (
        select(PROOFS).where(_P.stream == stream, _P.result == ProofOutcome.CLEAN).order_by(_P.number.desc()).limit(1)
    )
    row = connection.execute(newest).one_or_none()
    if row is None:
        return None
    files = connection.execute(select(PROVEN_FILES).where(_F.stream == stream))
    return _proof(row), [
        ProvenFile(each.table_name, each.location, each.tag, each.rows, each.hash, each.low, each.high)
        for each in files
    ]


def record(engine: Engine, proof: Proof, files: Iterable[ProvenFile]) -> int:
    """Write a proof into the book in one transaction; return its number. Files of a failed proof are not kept."""
    kept = list(files)
    for attempt in range(_ATTEMPTS):
        try:
            with transaction(engine) as connection:
                return _record(connection, proof, kept)
        except IntegrityError:  # another verify took the number, or wrote the same files
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


def _record(connection: Connection, proof: Proof, files: Sequence[ProvenFile]) -> int:
    number = (connection.scalar(select(func.max(_P.number)).where(_P.stream == proof.stream)) or 0) + 1
    row = {
        "stream": proof.stream,
        "number": number,
        "kind": proof.kind,
        "since": proof.since,
        "began_at": proof.began_at.timestamp(),
        "proven_at": proof.proven_at.timestamp(),
        "proven_by": proof.proven_by,
        "versions": json.dumps(proof.versions, sort_keys=True),
        "result": proof.outcome,
        "faults": proof.faults,
        "reached": json.dumps(proof.reached, sort_keys=True),
        "digest": proof.digest,
    }
    connection.execute(PROOFS.insert(), row)
    mine = _P.stream == proof.stream
    if proof.outcome is ProofOutcome.CLEAN:
        _replace_files(connection, proof.stream, files)
        older = select(func.max(_P.number)).where(mine, _P.number < number, _P.result == ProofOutcome.CLEAN)
    else:
        older = select(func.max(_P.number)).where(mine, _P.result == ProofOutcome.CLEAN)
    last = connection.scalar(older) or 0
    connection.execute(delete(PROOFS).where(mine, _P.number <= number - _KEPT_PROOFS, _P.number != last))
    return number


def _replace_files(connection: Connection, stream: str, files: Sequence[ProvenFile]) -> None:
    """Replace the files of a stream; rows of unchanged files are not touched."""
    mine = _F.stream == stream
    had = {(row.table_name, row.location): row for row in connection.execute(select(PROVEN_FILES).where(mine))}
    has = {(each.table, each.location): each for each in files}
    gone = [key for key, row in had.items() if key not in has or _values(has[key]) != tuple(row)[3:]]
    for table, location in gone:
        connection.execute(delete(PROVEN_FILES).where(mine, _F.table_name == table, _F.location == location))
    replaced = set(gone)
    new = [each for key, each in has.items() if key not in had or key in replaced]
    names = [column.name for column in PROVEN_FILES.columns]
    rows = [dict(zip(names, (stream, each.table, each.location, *_values(each)), strict=True)) for each in new]
    if rows:
        connection.execute(PROVEN_FILES.insert(), rows)


def _values(file: ProvenFile) -> tuple[Any, ...]:
    return (file.tag, file.rows, file.hash, file.low, file.high)


def _proof(row: Row[Any]) -> Proof:
    return Proof(
        row.stream,
        ProofKind(row.kind),
        datetime.fromtimestamp(row.began_at, UTC),
        datetime.fromtimestamp(row.proven_at, UTC),
        row.proven_by,
        ProofOutcome(row.result),
        row.faults,
        row.since,
        row.number,
        json.loads(row.versions),
        json.loads(row.reached),
    )
