"""Batches of events: what is in one, its bytes and its name."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random

from lakeproof.contracts import Contract
from lakeproof.reasons import Reason
from producer.encoding import JsonStyle, encode_record, join_records
from producer.events import Pools, make_event, make_pools
from producer.faults import Chances, add_unknown_field, break_schema, cut_short
from producer.seeds import seeded

# Duplicates are copies of one of so many earlier records.
_MEMORY = 10_000


@dataclass(frozen=True, slots=True)
class Record:
    """A record as written.

    Parameters
    ----------
    data
        Its bytes.
    reasons
        Why it breaks its contract; empty for a sound one.
    duplicate
        Whether it is a copy of an earlier record; then `reasons` are that one's.
    anomaly
        Whether it is a reading out of the range of its contract: sound, and to be marked.
    key
        What the record says its ``event_id`` is; None where that is no text.
    """

    data: bytes
    reasons: tuple[Reason, ...] = ()
    duplicate: bool = False
    anomaly: bool = False
    key: str | None = None


@dataclass(frozen=True)
class Batch:
    """A batch, ready to land.

    Parameters
    ----------
    name
        Its path below the target; names sort by time.
    data
        Its bytes.
    records
        The records that went into it, also where it was then cut short.
    corrupt
        Whether it was cut short.
    """

    name: str
    data: bytes
    records: tuple[Record, ...]
    corrupt: bool


@dataclass(frozen=True)
class Plan:
    """What to make.

    Parameters
    ----------
    seed
        Fixes every choice.
    users
        How many users there are.
    batch_size
        Records in a batch.
    evolve_after
        How many batches come before purchases begin to have a ``product_id``.
    style
        How a batch is written.
    chances
        How likely each fault is.
    """

    seed: int
    users: int
    batch_size: int
    evolve_after: int
    style: JsonStyle
    chances: Chances


def make_batches(plan: Plan, contract: Contract, times: Iterable[datetime]) -> Iterator[Batch]:
    """Make a batch for each of `times`.

    The same plan makes the same batches for the same times. For other times only the timestamps in them and their
    names differ.

    Parameters
    ----------
    plan
        What to make.
    contract
        The contract of the events, which faults break on purpose.
    times
        When each batch lands, UTC; asked for one at a time.
    """
    pools = make_pools(plan.seed, plan.users)
    event_rng, fault_rng = seeded(plan.seed, "events"), seeded(plan.seed, "faults")
    memory: list[Record] = []
    for sequence, landing_at in enumerate(times):
        records = []
        for _ in range(plan.batch_size):
            if memory and fault_rng.random() < plan.chances.duplicate:
                original = fault_rng.choice(memory)
                records.append(replace(original, duplicate=True))
            else:
                record = _make_record(plan, contract, pools, event_rng, fault_rng, sequence, landing_at)
                records.append(record)
                _remember(record, memory, fault_rng)
        data = join_records([record.data for record in records], plan.style)
        corrupt = fault_rng.random() < plan.chances.corruption
        if corrupt:
            data, _ = cut_short(data, fault_rng)
        yield Batch(batch_name(landing_at, sequence), data, tuple(records), corrupt)


def batch_name(landing_at: datetime, sequence: int) -> str:
    """Name of a batch: a folder per day and hour, and in it the time to the microsecond and a running number."""
    return f"{landing_at:dt=%Y-%m-%d/hh=%H/%Y%m%dT%H%M%S.%f}Z-{sequence:06d}.json"


def _make_record(
    plan: Plan, contract: Contract, pools: Pools, rng: Random, fault_rng: Random, sequence: int, landing_at: datetime
) -> Record:
    event = make_event(rng, pools, landing_at, with_product=sequence >= plan.evolve_after)
    reasons = []
    if fault_rng.random() < plan.chances.invalid_schema:
        event, reason = break_schema(event, contract, fault_rng)
        reasons.append(reason)
    if fault_rng.random() < plan.chances.extra_field:
        event, reason = add_unknown_field(event, contract, fault_rng)
        reasons.append(reason)
    key = event.get("event_id")
    return Record(
        encode_record(event, plan.style), tuple(sorted(reasons)), key=key if isinstance(key, str) and key else None
    )


def _remember(record: Record, memory: list[Record], rng: Random) -> None:
    if len(memory) < _MEMORY:
        memory.append(record)
    else:
        memory[rng.randrange(_MEMORY)] = record
