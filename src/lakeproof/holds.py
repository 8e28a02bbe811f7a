"""Registered readers: a tag of Iceberg keeps the snapshot that a reader needs, up to a deadline.

Any tool that expires snapshots honors the tag, and drops it once its deadline has passed. Our maintenance also keeps
all later snapshots, so that a streaming reader can continue from the tagged one.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import TYPE_CHECKING

import structlog

from lakeproof.documents.names import is_identifier
from lakeproof.errors import UsageError
from lakeproof.references import GoneError, Metadata, change_tag, current, newest_metadata, snapshot_of, tag_of
from lakeproof.wording import count_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

log = structlog.get_logger()

PREFIX = "lakeproof-reader-"
OF_BACKUP = "lakeproof-backup-"
"""Prefix of the names of tags that keep the files of a backup."""
_MAIN = "main"
_LONGEST_AGE = 10 * 365 * 86_400_000  # ms; Python cannot represent times as late as with Iceberg's longest age
_RENEWAL = timedelta(hours=1)
_CLOCKS_DIFFER = timedelta(seconds=30)  # between the machines that commit


@dataclass(frozen=True)
class Reference:
    """A branch or tag, which keeps its snapshot; a branch also keeps the ancestors of its snapshot."""

    name: str
    is_branch: bool
    snapshot_id: int
    at: datetime
    """Commit time of the snapshot."""
    until: datetime | None = None
    """Time when Iceberg drops the reference; None for never."""

    @property
    def is_hold(self) -> bool:
        """Whether a registered reader created the reference."""
        return not self.is_branch and self.name.startswith(PREFIX)

    @property
    def has_passed(self) -> bool:
        """Whether the next expiry drops the reference."""
        return self.until is not None and self.until <= datetime.now(UTC)

    @property
    def reader(self) -> str:
        """The name of the registered reader."""
        return self.name.removeprefix(PREFIX)

    @property
    def lasts(self) -> str:
        """The deadline in words; empty without a deadline."""
        return f" until {self.until:%F %H:%M} UTC" if self.until else ""

    def __str__(self) -> str:
        if self.is_hold:
            return f"reader {self.reader}{self.lasts}"
        return f"{'branch' if self.is_branch else 'tag'} {self.name}{self.lasts}"


def references(metadata: Metadata) -> list[Reference]:
    """Return branches and tags of a table, without the main branch and references to missing snapshots."""
    found = []
    for name, ref in sorted(metadata.get("refs", {}).items()):
        snapshot = snapshot_of(metadata, ref["snapshot-id"])
        if name != _MAIN and snapshot is not None:
            found.append(_reference(name, ref, snapshot))
    return found


def _reference(name: str, ref: Metadata, snapshot: Metadata) -> Reference:
    at = datetime.fromtimestamp(snapshot["timestamp-ms"] / 1000, UTC)
    age = ref.get("max-ref-age-ms")
    until = None if age is None else at + timedelta(milliseconds=min(age, _LONGEST_AGE))
    return Reference(name, ref["type"] == "branch", ref["snapshot-id"], at, until)


def named(found: Sequence[Reference]) -> list[str]:
    """Format references in words; backups, which may be many, in one line."""
    backups = [each for each in found if each.name.startswith(OF_BACKUP)]
    last = max(backups, key=lambda each: each.until or datetime.max.replace(tzinfo=UTC), default=None)
    of_backups = [f"{count_of(len(backups), 'backup')}{last.lasts}"] if last else []
    return [str(each) for each in found if each not in backups] + of_backups


def holds_of(metadata: Metadata) -> list[Reference]:
    """Return the references of registered readers whose deadline has not passed."""
    return [each for each in references(metadata) if each.is_hold and not each.has_passed]


def held_since(metadata: Metadata) -> list[datetime]:
    """Return the earliest time of the snapshots that registered readers still need, or nothing without a reader.

    A stream resumes from its snapshot and reads all later ones. Clocks of writers differ, so a later snapshot may have
    an earlier time. Iceberg expires all ancestors of the first snapshot that is too old, so the earliest time counts.
    """
    held = [snapshot_of(metadata, each.snapshot_id) for each in holds_of(metadata)]
    first = min((each.get("sequence-number", 0) for each in held if each), default=None)
    times = [
        each["timestamp-ms"]
        for each in metadata.get("snapshots", ())
        if first is not None and each.get("sequence-number", 0) >= first
    ]
    return [datetime.fromtimestamp(min(times) / 1000, UTC)] if times else []


def hold(
    catalog: "Catalog",
    table: str,
    name: str,
    until: datetime,
    snapshot_id: int | None = None,
    *,
    oldest: bool = False,
) -> Reference | None:
    """Keep a snapshot of a table until a deadline: the given one, the oldest or the newest.

    A reader that already holds a snapshot keeps it, unless another one is given; for the same snapshot, the later
    deadline applies. Return None if there is no table or no snapshot, or if the given one has expired.
    """
    tag, found = f"{PREFIX}{check_name(name)}", None

    def wanted(metadata: Metadata) -> Metadata | None:
        nonlocal found
        before: Metadata | None = metadata.get("refs", {}).get(tag)
        # Until a tool expires snapshots, the tag of a hold whose deadline has passed remains.
        held = before if any(each.name == tag for each in holds_of(metadata)) else None
        first = _oldest(metadata) if oldest else current(metadata)
        snapshot = snapshot_of(metadata, snapshot_id or (held["snapshot-id"] if held else first))
        if snapshot is None:
            found = None
            return before
        reference = tag_of(snapshot, int(until.timestamp() * 1000))
        if held and held["snapshot-id"] == reference["snapshot-id"]:
            reference = max(held, reference, key=lambda each: each.get("max-ref-age-ms", _LONGEST_AGE))
        found = _reference(tag, reference, snapshot)
        return reference

    try:
        change_tag(catalog, table, tag, wanted)
    except GoneError:
        return None
    return found


def release(catalog: "Catalog", table: str, name: str) -> bool:
    """Release the snapshot of a table that a reader holds; return whether it held one."""
    tag, has_held = f"{PREFIX}{check_name(name)}", False

    def wanted(metadata: Metadata) -> None:
        nonlocal has_held
        has_held = has_held or tag in metadata.get("refs", {})

    with suppress(GoneError):
        change_tag(catalog, table, tag, wanted)
    return has_held


def check_name(name: str) -> str:
    """Check the name of a reader."""
    if not is_identifier(name.replace("-", "_")):
        raise UsageError(f"{name!r} is not a name for a reader.", "Use letters, digits, _ and -, like nightly-report.")
    return name


def _oldest(metadata: Metadata) -> int | None:
    """Return the oldest ancestor of the current snapshot."""
    snapshots = {each["snapshot-id"]: each for each in metadata.get("snapshots", ())}
    at = found = current(metadata)
    while at in snapshots:
        found, at = at, snapshots[at].get("parent-snapshot-id")
    return found


@contextmanager
def holding(
    open_catalog: "Callable[[], Catalog]", tables: Callable[[], tuple[Sequence[str], timedelta]], name: str
) -> Iterator[None]:
    """Hold the current snapshots of tables while the block runs, if that may take longer than snapshots are kept.

    `tables` returns the names of the tables, and how long snapshots are kept. Nothing is read or written before a
    quarter of that time, or an hour. Errors of the catalog are only logged.
    """
    ending, held = Event(), set[str]()
    began = datetime.now(UTC) - _CLOCKS_DIFFER

    def hold_all() -> None:
        try:
            names, keep = tables()
        except UsageError:
            return  # an error in a contract or a product: the caller reports it
        while not ending.wait(min(keep / 4, _RENEWAL).total_seconds()):
            try:
                catalog = open_catalog()
                for table in names:
                    snapshot_id = None if table in held else _as_of(catalog, table, began)
                    if (table in held or snapshot_id) and not ending.is_set():
                        hold(catalog, table, name, datetime.now(UTC) + keep, snapshot_id)
                        held.add(table)
            except Exception as error:  # noqa: BLE001 - whatever PyIceberg raises: tried again the next time
                log.warning("snapshots are not held", error=str(error))

    thread = Thread(target=hold_all, name="hold", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
        with suppress(Exception):  # the tags have a deadline
            for table in held:
                release(open_catalog(), table, name)


def _as_of(catalog: "Catalog", table: str, time: datetime) -> int | None:
    """Return the snapshot that a table had at a time, or its first one after that."""
    try:
        history = newest_metadata(catalog, table)[1].get("snapshot-log", [])
    except GoneError:
        return None
    before = [each for each in history if each["timestamp-ms"] <= time.timestamp() * 1000]
    found = before[-1] if before else next(iter(history), None)
    return found["snapshot-id"] if found else None
