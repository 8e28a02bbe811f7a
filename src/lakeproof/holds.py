"""Registered readers: a tag of Iceberg keeps the snapshot that a reader needs, up to a deadline.

Any tool that expires snapshots honours the tag, and drops it once its deadline has passed. Our maintenance also keeps
all snapshots after that one, so that a streaming reader can go on from it.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeVar

import structlog

from lakeproof.catalog import CATALOG
from lakeproof.contracts.read.names import is_identifier
from lakeproof.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

log = structlog.get_logger()

PREFIX = "lakeproof-reader-"
_ATTEMPTS = 10
FoundT = TypeVar("FoundT")
_LONGEST_WAIT = 1.0
_RENEWAL = timedelta(hours=1)
_CLOCKS_DIFFER = timedelta(seconds=30)  # of the machines that commit


class CannotHoldError(UsageError):
    """A table to which only Spark can write."""


@dataclass(frozen=True)
class Hold:
    """What a reader keeps of a table."""

    table: str
    name: str
    snapshot_id: int
    until: datetime


def is_hold(tag: str) -> bool:
    """Whether a tag is that of a registered reader."""
    return tag.startswith(PREFIX)


def name_of(tag: str) -> str:
    """The name of the reader of a tag."""
    return tag.removeprefix(PREFIX)


def holds_of(table: "Table", name: str) -> list[Hold]:
    """The registered readers of a table, named as `name`, whose deadline has not passed."""
    found = []
    for tag, ref in sorted(table.metadata.refs.items()):
        snapshot = table.snapshot_by_id(ref.snapshot_id)
        if is_hold(tag) and snapshot and ref.max_ref_age_ms:
            until = datetime.fromtimestamp((snapshot.timestamp_ms + ref.max_ref_age_ms) / 1000, UTC)
            if until > datetime.now(UTC):
                found.append(Hold(name, name_of(tag), ref.snapshot_id, until))
    return found


def hold(
    catalog: "Catalog",
    table: str,
    name: str,
    until: datetime,
    snapshot_id: int | None = None,
    *,
    oldest: bool = False,
) -> Hold | None:
    """Keep a snapshot of a table until a deadline: the given one, the oldest, or the newest.

    If a reader of this name has one already, it keeps that one, and the deadline is replaced. None if the table has no
    snapshot, or the given one has expired.
    """
    from pyiceberg.table.snapshots import ancestors_of

    check_name(name)
    tag = f"{PREFIX}{name}"

    def change(loaded: "Table") -> Hold | None:
        held = loaded.metadata.refs.get(tag)
        ancestors = list(ancestors_of(loaded.current_snapshot(), loaded.metadata))
        first = next(iter(ancestors[-1:] if oldest else ancestors), None)
        wanted = snapshot_id or (held.snapshot_id if held else first and first.snapshot_id)
        snapshot = loaded.snapshot_by_id(wanted) if wanted else None
        if snapshot is None:
            return None
        age = int(until.timestamp() * 1000) - snapshot.timestamp_ms
        with loaded.manage_snapshots() as update:
            update.create_tag(snapshot.snapshot_id, tag, max_ref_age_ms=age)
        return Hold(table, name, snapshot.snapshot_id, until)

    return _commit(catalog, table, change)


def release(catalog: "Catalog", table: str, name: str) -> bool:
    """Keep nothing of a table for a reader any longer; return whether it kept something."""
    tag = f"{PREFIX}{check_name(name)}"

    def change(loaded: "Table") -> bool:
        if tag not in loaded.metadata.refs:
            return False
        with loaded.manage_snapshots() as update:
            update.remove_tag(tag)
        return True

    return _commit(catalog, table, change)


def check_name(name: str) -> str:
    """Check the name of a reader."""
    if not is_identifier(name.replace("-", "_")):
        raise UsageError(f"{name!r} is not a name for a reader.", "Use letters, digits, _ and -, like nightly-report.")
    return name


def _commit(catalog: "Catalog", table: str, change: "Callable[[Table], FoundT]") -> FoundT:
    """Change a table against its newest state; a writer that is faster makes this try again."""
    from pyiceberg.exceptions import CommitFailedException

    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return change(catalog.load_table(table))
        except NotImplementedError as error:
            raise CannotHoldError(
                f"PyIceberg cannot change {table}: its format version is 3.",
                f"In Spark: ALTER TABLE {CATALOG}.{table} CREATE TAG `{PREFIX}NAME` RETAIN 1 DAYS. DROP TAG ends it.",
            ) from error
        except CommitFailedException:
            time.sleep(_LONGEST_WAIT * attempt / _ATTEMPTS)
    raise UnavailableError(f"Cannot change {table}: writers keep changing it.", "Run it again.")


@contextmanager
def holding(
    open_catalog: "Callable[[], Catalog]", tables: Callable[[], tuple[Sequence[str], timedelta]], name: str
) -> Iterator[None]:
    """Keep what tables have now, for as long as the block runs, if that may take longer than snapshots are kept.

    `tables` returns their names, and how long snapshots are kept. Nothing is read or written before a quarter of that
    time. A catalog that cannot be written to is only logged.
    """
    ending, held = Event(), set[str]()
    began = datetime.now(UTC) - _CLOCKS_DIFFER

    def hold_all() -> None:
        try:
            names, keep = tables()
            while not ending.wait(min(keep / 4, _RENEWAL).total_seconds()):
                catalog = open_catalog()
                for table in names:
                    snapshot_id = None if table in held else _as_of(catalog, table, began)
                    if (table in held or snapshot_id) and not ending.is_set():
                        with suppress(CannotHoldError):
                            hold(catalog, table, name, datetime.now(UTC) + keep, snapshot_id)
                            held.add(table)
        except UsageError:
            return  # of a contract or a product: whoever runs the block reports it
        except Exception as error:  # noqa: BLE001 - whatever PyIceberg raises: the reader goes on without
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
    """The snapshot that a table had at a time, or its first one after that."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        history = catalog.load_table(table).history()
    except NoSuchTableError:
        return None
    before = [each for each in history if each.timestamp_ms <= time.timestamp() * 1000]
    found = before[-1] if before else next(iter(history), None)
    return found.snapshot_id if found else None
