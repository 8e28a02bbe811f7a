"""Generate batches of records."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random
from typing import Any, Protocol

from lakeproof.contracts import Contract
from lakeproof.reasons import Reason
from producer.encoding import JsonStyle, encode_record, join_records
from producer.events import Events, make_pools
from producer.faults import Chances, add_unknown_field, break_schema, cut_short, part_of
from producer.seeds import seeded

# Number of earlier records that can be duplicated.
_MEMORY = 10_000


@dataclass(frozen=True, slots=True)
class Record:
    """An encoded record."""

    data: bytes
    reasons: tuple[Reason, ...] = ()  # empty for a valid record
    duplicate: bool = False  # a copy of an earlier record, with its reasons
    anomaly: bool = False  # a valid reading outside of the expected range
    key: str | None = None  # the id as text; None if it is not a string or an integer


@dataclass(frozen=True)
class Batch:
    """A batch to land."""

    name: str  # path below the target; names sort by time
    data: bytes
    records: tuple[Record, ...]  # including those that were cut off
    corrupt: bool


class Maker(Protocol):
    """Generates records of one stream."""

    @property
    def key(self) -> str:
        """Name of the field that identifies a record."""
        ...

    @property
    def inside(self) -> str:
        """Name of the nested object in which faults are made; empty for the record itself."""
        ...

    def make(self, rng: Random, landing_at: datetime, sequence: int) -> dict[str, Any]:
        """Generate a valid record for batch `sequence`, which lands at `landing_at` (UTC)."""
        ...


@dataclass(frozen=True)
class BatchPlan:
    """Parameters of the batches to generate."""

    seed: int
    users: int
    batch_size: int
    evolve_after: int  # number of batches before purchases get a ``product_id``
    style: JsonStyle
    chances: Chances


def make_batches(
    plan: BatchPlan, contract: Contract, times: Iterable[datetime], maker: Maker | None = None
) -> Iterator[Batch]:
    """Generate a batch for each of `times`, deterministically.

    Different times change only timestamps and names.
    """
    if maker is None:
        maker = Events(make_pools(plan.seed, plan.users), plan.evolve_after)
    event_rng, fault_rng = seeded(plan.seed, "events"), seeded(plan.seed, "faults")
    memory: list[Record] = []
    for sequence, landing_at in enumerate(times):
        records = []
        for _ in range(plan.batch_size):
            if memory and fault_rng.random() < plan.chances.duplicate:
                original = fault_rng.choice(memory)
                records.append(replace(original, duplicate=True))
            else:
                record = _make_record(plan, contract, maker, event_rng, fault_rng, sequence, landing_at)
                records.append(record)
                _remember(record, memory, fault_rng)
        data = join_records([record.data for record in records], plan.style)
        corrupt = fault_rng.random() < plan.chances.corruption
        if corrupt:
            data, _ = cut_short(data, fault_rng)
        yield Batch(batch_name(landing_at, sequence), data, tuple(records), corrupt)


def batch_name(landing_at: datetime, sequence: int) -> str:
    """Return the name of a batch: folders for day and hour, then the time with microseconds and a number."""
    return f"{landing_at:dt=%Y-%m-%d/hh=%H/%Y%m%dT%H%M%S.%f}Z-{sequence:06d}.json"


def _make_record(
    plan: BatchPlan,
    contract: Contract,
    maker: Maker,
    rng: Random,
    fault_rng: Random,
    sequence: int,
    landing_at: datetime,
) -> Record:
    record = maker.make(rng, landing_at, sequence)
    part, within = part_of(contract, maker.inside), record[maker.inside] if maker.inside else record
    reasons = []
    if fault_rng.random() < plan.chances.invalid_schema:
        within, reason = break_schema(within, part, fault_rng)
        reasons.append(reason)
    if fault_rng.random() < plan.chances.extra_field:
        within, reason = add_unknown_field(within, part, fault_rng)
        reasons.append(reason)
    record = {**record, maker.inside: within} if maker.inside else within
    return Record(encode_record(record, plan.style), tuple(sorted(reasons)), key=_key(record.get(maker.key)))


def _key(value: object) -> str | None:
    has_text = isinstance(value, str | int) and not isinstance(value, bool)
    return (str(value) or None) if has_text else None


def _remember(record: Record, memory: list[Record], rng: Random) -> None:
    if len(memory) < _MEMORY:
        memory.append(record)
    else:
        memory[rng.randrange(_MEMORY)] = record
