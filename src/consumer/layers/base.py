"""The engine of the layers: one protocol, and the one place that drives it.

A layer follows what another query has committed, and says only what is its own:

    next      what to do, by the newest markers: the rest of what was begun, or what came since then, or nothing
    compute   writes data files that no table knows of, and yields its commits in the order in which they must happen
    commit    the engine checks the lease, then makes each; a table that holds the marker already stays as it is
    recover   nothing of its own: the last commit says that all before it are done, so `next` finds what a crash left
    rebuild   the same layer over tables with other names, filled from the start, then swapped (``layers/rebuild.py``)

``app/query.py`` runs a layer: when to look, news, backlog, outages, errors, the end. ``layers/registry.py`` has a line
for each. Bronze computes and commits like the others, but Spark's checkpoint says what is next (``app/landing.py``).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from time import monotonic
from typing import Any, ClassVar, Generic, Self, TypeVar

import structlog
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from consumer.asked import Asked
from consumer.iceberg.append import OpenTable, append_once
from consumer.iceberg.data_files import DataFile
from consumer.iceberg.marker import Marker, MarkerLostError
from consumer.iceberg.upsert import OldRows, upsert_once
from lakeproof.state.lease import Lease

log = structlog.get_logger()

WorkT = TypeVar("WorkT")
Totals = dict[str, Any]
"""What is logged of a micro-batch."""
Commit = Callable[[], object]
Commits = Generator[Commit, None, Totals]


class Computing(ABC, Generic[WorkT]):
    """What the engine needs to take one micro-batch."""

    event: ClassVar[str]
    """Name of its line in the log."""
    name: str
    """Name of its query: of its markers, its pool, and its lines in the log and in `consumer status`."""
    remedy: str | None = None
    """What to do where markers do not fit; None leaves the hint of the error."""

    @abstractmethod
    def compute(self, spark: SparkSession, work: WorkT) -> Commits:
        """Write data files, yield commits, and return what is logged."""


class Layer(Computing[WorkT]):
    """A layer that follows tables, or a sink."""

    lease_name: str
    stream: str
    follows: str | None = None
    """Name of the query whose commits it takes."""
    every: float | None = None
    """Seconds from one look to the next, news or not; None looks when there is news, and at the trigger's interval."""
    has_backlog = False
    """Whether its newest micro-batch was as large as allowed, and there is more to take."""
    waits_for_backlog = False
    """Whether to look less often while the query that it follows has a backlog."""
    outlasts_outages = False
    """Whether to wait where a server is unavailable, since the tables are filled meanwhile."""
    tables: Sequence[str] = ()
    """What a rebuild fills, the one that says how far the layer is last; empty if it cannot be rebuilt."""
    source: str = ""
    """The table that a rebuild fills them from."""
    reads: Sequence[str] = ()
    """What a layer without `source` follows: a table, or `kafka:` and a topic."""
    writes: Sequence[str] = ()
    """What it fills beside tables: the URI of a folder, or `kafka:` and a topic."""
    resumes = False
    """Whether an interrupted rebuild is continued."""

    @classmethod
    @abstractmethod
    def asked(cls, asked: Asked) -> Iterable[Self]:
        """Return those of this kind that a command is to fill."""

    def beside(self, suffix: str) -> Self:  # noqa: ARG002 - for a layer with tables
        """Return the same layer over tables whose names have a suffix."""
        raise RuntimeError(f"{self.name} has no tables to be rebuilt.")

    def prepare(self, catalog: Catalog) -> None:
        """Create missing tables, without Spark: called while Spark starts."""

    def open(self, spark: SparkSession) -> None:
        """Create what only Spark can create."""

    @abstractmethod
    def next(self, spark: SparkSession) -> WorkT | None:
        """Find what to do; None if there is nothing."""

    def close(self) -> None:
        """Release what is held beside the tables."""


@dataclass
class Append:
    """The commit of an append, which knows afterwards whether it was made, or the table had the micro-batch already."""

    table: OpenTable
    marker: Marker
    files: Sequence[DataFile]
    was_made: bool = False

    def __call__(self) -> None:
        """Commit it."""
        self.was_made = append_once(self.table, self.marker, self.files)


def append(table: OpenTable, marker: Marker, files: Sequence[DataFile]) -> Append:
    """Return the commit of an append."""
    return Append(table, marker, files)


def upsert(table: OpenTable, marker: Marker, files: Sequence[DataFile], find_old: Callable[[int], OldRows]) -> Commit:
    """Return the commit of new rows and the removal of those that they replace."""
    return lambda: upsert_once(table, marker, files, find_old)


def take(layer: Layer[WorkT], spark: SparkSession, lease: Lease) -> bool:
    """Take a micro-batch; return whether there was one."""
    try:
        began = monotonic()
        work = layer.next(spark)
        if work is None:
            return False
        run(layer, spark, work, lease, began)
    except MarkerLostError as error:
        if layer.remedy:
            raise MarkerLostError(error.message, layer.remedy) from error
        raise
    return True


def run(layer: Computing[WorkT], spark: SparkSession, work: WorkT, lease: Lease, began: float | None = None) -> None:
    """Compute and commit a micro-batch, and log it."""
    began = monotonic() if began is None else began
    totals = complete(layer, spark, work, lease)
    log.info(layer.event, **totals, seconds=round(monotonic() - began, 3))


def complete(layer: Computing[WorkT], spark: SparkSession, work: WorkT, lease: Lease) -> Totals:
    """Compute and commit a micro-batch; return what is to be logged of it."""
    began, committing = monotonic(), 0.0
    with closing(layer.compute(spark, work)) as commits:
        while True:
            try:
                commit = next(commits)
            except StopIteration as end:
                computing = monotonic() - began - committing
                phases = {"compute": round(computing, 3), "commit": round(committing, 3)}
                return {"query": layer.name, **end.value, "phases": phases}
            since = monotonic()
            lease.check()
            try:
                commit()
            except MarkerLostError:
                lease.check()  # another consumer that took over is the clearer reason
                raise
            committing += monotonic() - since
