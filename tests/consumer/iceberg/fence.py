"""A small model of the fence: writers, a catalog that swaps states, and a network that loses and repeats messages.

Every interleaving is explored. Each guard can be removed, which brings back the bug that it prevents. The modeled code
is ``commit_once`` in :mod:`consumer.iceberg.append`; the terms are the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Flag, auto
from typing import NamedTuple


class Guard(Flag):
    """Guards that ``commit_once`` relies on."""

    SWAP = auto()
    """The catalog replaces the state that a commit was prepared from, and no other."""
    MARKER_OF_THE_BASE = auto()
    """The marker is read from the state that the commit is prepared from, not before."""
    FILES_STAY = auto()
    """A refused commit deletes nothing: it may have landed."""
    LOOK_AFTER_ERROR = auto()
    """After an error, the table says whether the commit landed."""

    ALL = SWAP | MARKER_OF_THE_BASE | FILES_STAY | LOOK_AFTER_ERROR


class Snapshot(NamedTuple):
    """A snapshot: its writer, the writer's attempt, and the micro-batch in its marker."""

    writer: int
    attempt: int
    micro_batch: int


Table = tuple[Snapshot, ...]
"""A state of the table: its snapshots, the newest last."""


@dataclass(frozen=True)
class Request:
    """A commit on its way to the catalog; a client or a proxy may send it twice."""

    base: Table
    snapshot: Snapshot
    copies: int
    answer: str = ""
    """Answer of the catalog to the newest copy: "landed" or "refused"."""


@dataclass(frozen=True)
class Writer:
    """A consumer with one micro-batch to append.

    It may be suspended between any two steps, and another writer may have begun the same micro-batch.
    """

    micro_batch: int
    step: str = "look"
    base: Table = ()
    request: Request | None = None
    attempt: int = 0


@dataclass(frozen=True)
class World:
    """The complete state at one moment."""

    table: Table
    deleted: frozenset[Snapshot]
    """Snapshots whose manifests were deleted."""
    writers: tuple[Writer, ...]


_ATTEMPTS = 2


def explore(guards: Guard, micro_batches: tuple[int, ...]) -> tuple[int, set[str]]:
    """Explore every sequence of steps from the beginning to the end.

    Parameters
    ----------
    guards
        Guards that are in place.
    micro_batches
        The micro-batch that each writer appends; the table has none before micro-batch 0.

    Returns
    -------
    tuple of int and set of str
        The number of states seen, and the faults in any of them.
    """
    beginning = World((), frozenset(), tuple(Writer(number) for number in micro_batches))
    seen, pending, wrong = {beginning}, [beginning], set[str]()
    while pending:
        world = pending.pop()
        wrong |= _wrong(world)
        for after in _steps(world, guards):
            if after not in seen:
                seen.add(after)
                pending.append(after)
    return len(seen), wrong


def _wrong(world: World) -> set[str]:
    found = set()
    numbers = [snapshot.micro_batch for snapshot in world.table]
    if len(set(numbers)) < len(numbers):
        found.add("doubled")
    if set(world.table) & world.deleted:
        found.add("destroyed")
    for index, writer in enumerate(world.writers):
        if writer.step in ("appended", "had it") and writer.micro_batch not in numbers:
            found.add("lost")
        landed = any(snapshot[:2] == (index, writer.attempt) for snapshot in world.table)
        if writer.step == "failed" and landed:
            found.add("failed though it landed")
    return found


def _steps(world: World, guards: Guard) -> Iterator[World]:
    for index, writer in enumerate(world.writers):
        for table, deleted, after in _steps_of(world, index, writer, guards):
            yield World(table, deleted, (*world.writers[:index], after, *world.writers[index + 1 :]))


def _steps_of(
    world: World, index: int, writer: Writer, guards: Guard
) -> Iterator[tuple[Table, frozenset[Snapshot], Writer]]:
    """Yield the next possible steps of a writer, or of its request on the network."""
    table, deleted = world.table, world.deleted
    request = writer.request
    match writer.step:
        case "look":
            yield table, deleted, _looked(table, writer)
        case "prepare":
            base = writer.base if Guard.MARKER_OF_THE_BASE in guards else table
            snapshot = Snapshot(index, writer.attempt, writer.micro_batch)
            for copies in (1, 2):
                yield table, deleted, replace(writer, step="sent", request=Request(base, snapshot, copies))
        case "sent" if request and request.copies:
            fits = table == request.base if Guard.SWAP in guards else request.snapshot not in table
            answer = "landed" if fits else "refused"
            arrived = replace(request, copies=request.copies - 1, answer=answer)
            yield (*table, request.snapshot) if fits else table, deleted, replace(writer, request=arrived)
        case "sent" if request:
            yield table, deleted, replace(writer, step=request.answer)
            yield table, deleted, replace(writer, step="unknown")  # no answer: a connection was reset
        case "landed":
            yield table, deleted, replace(writer, step="appended", request=None)
        case "refused" if request:
            if Guard.FILES_STAY not in guards:
                deleted |= {request.snapshot}
            yield table, deleted, _after_error(table, writer, request, guards, certain=True)
        case "unknown" if request:
            yield table, deleted, _after_error(table, writer, request, guards, certain=False)


def _looked(table: Table, writer: Writer) -> Writer:
    newest = table[-1].micro_batch if table else -1
    if newest == writer.micro_batch:
        return replace(writer, step="had it")
    if newest != writer.micro_batch - 1:
        return replace(writer, step="refused by the marker")
    return replace(writer, step="prepare", base=table)


def _after_error(table: Table, writer: Writer, request: Request, guards: Guard, *, certain: bool) -> Writer:
    if Guard.LOOK_AFTER_ERROR in guards and request.snapshot in table:
        return replace(writer, step="appended", request=None)
    if certain and writer.attempt + 1 < _ATTEMPTS:
        return replace(writer, step="look", attempt=writer.attempt + 1, request=None)
    return replace(writer, step="failed", request=None)
