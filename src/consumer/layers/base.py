"""The engine of the layers: one protocol, and the one place that drives it.

A layer follows the commits of another query, and implements only its own part:

    next      find the work, from the newest markers: an unfinished micro-batch, newer commits, or nothing
    compute   write data files that no table refers to yet, and yield the commits in the required order
    commit    the engine checks the lease, then makes each commit; a table that already has the marker is unchanged
    recover   needs no code: the last commit implies all before it, so `next` finds what a crash left unfinished
    rebuild   the same layer over tables with other names, filled from the start, then swapped (``layers/rebuild.py``)

``queries/layer.py`` runs a layer: polling, news, backlog, outages, errors, shutdown. ``layers/registry.py`` has a line
for each. Bronze computes and commits like the others, but its source says what is next (``queries/bronze.py``).
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

from consumer.iceberg.append import OpenTable, append_once
from consumer.iceberg.data_files import DataFile
from consumer.iceberg.marker import Marker, MarkerLostError
from consumer.iceberg.upsert import OldRows, upsert_once
from consumer.scope import Scope
from lakeproof.errors import LakeproofError
from lakeproof.state.lease import Lease

log = structlog.get_logger()

WorkT = TypeVar("WorkT")
Totals = dict[str, Any]
"""Values to log for a micro-batch."""
Commit = Callable[[], object]
Commits = Generator[Commit, None, Totals]


class OldRulesError(LakeproofError):
    """The rows of a layer's tables follow rules that have changed since: only a rebuild helps."""


class Computing(ABC, Generic[WorkT]):
    """The interface that the engine needs to process one micro-batch."""

    event: ClassVar[str]
    """Name of the log event."""
    name: str
    """Name of the query: used in markers, the pool, the log and `consumer status`."""
    remedy: str | None = None
    """Hint for markers that do not fit; None keeps the hint of the error."""

    @abstractmethod
    def compute(self, spark: SparkSession, work: WorkT) -> Commits:
        """Write data files, yield commits, and return the values to log."""


class Layer(Computing[WorkT]):
    """A layer that follows tables, or a sink."""

    lease_name: str
    stream: str
    follows: str | None = None
    """Name of the query whose commits the layer processes."""
    every: float | None = None
    """Seconds between polls, regardless of news; None polls on news and at the trigger's interval."""
    has_backlog = False
    """Whether the newest micro-batch was as large as allowed, and more is waiting."""
    waits_for_backlog = False
    """Whether to poll less often while the followed query has a backlog."""
    outlasts_outages = False
    """Whether to wait while a server is unavailable, since the tables are filled meanwhile."""
    tables: Sequence[str] = ()
    """The tables that a rebuild fills, the one with the layer's progress last; empty if the layer cannot be rebuilt."""
    source: str = ""
    """The table that a rebuild reads."""
    reads: Sequence[str] = ()
    """Inputs of a layer without `source`: a table, or `kafka:` and a topic."""
    writes: Sequence[str] = ()
    """Outputs other than tables: the URI of a folder, or `kafka:` and a topic."""
    resumes = False
    """Whether an interrupted rebuild is continued."""

    @classmethod
    @abstractmethod
    def in_scope(cls, scope: Scope) -> Iterable[Self]:
        """Return the layers of this kind that a command fills."""

    def beside(self, suffix: str) -> Self:  # noqa: ARG002 - for a layer with tables
        """Return the same layer over tables whose names have a suffix."""
        raise RuntimeError(f"{self.name} has no tables to be rebuilt.")

    def prepare(self, catalog: Catalog) -> None:
        """Create missing tables, without Spark: called while Spark starts."""

    def open(self, spark: SparkSession) -> None:
        """Create what only Spark can create."""

    @abstractmethod
    def next(self, spark: SparkSession) -> WorkT | None:
        """Find the next work; None if everything is done."""

    def close(self) -> None:
        """Release resources other than the tables."""


@dataclass
class Append:
    """The commit of an append. `was_made` is false if the table already had the micro-batch."""

    table: OpenTable
    marker: Marker
    files: Sequence[DataFile]
    was_made: bool = False

    def __call__(self) -> None:
        """Commit it."""
        self.was_made = append_once(self.table, self.marker, self.files)


def upsert(table: OpenTable, marker: Marker, files: Sequence[DataFile], find_old: Callable[[int], OldRows]) -> Commit:
    """Return the commit that adds new rows and removes the rows that they replace."""
    return lambda: upsert_once(table, marker, files, find_old)


def take(layer: Layer[WorkT], spark: SparkSession, lease: Lease) -> bool:
    """Process a micro-batch; return whether there was one."""
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
    """Compute and commit a micro-batch; return the values to log."""
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
                lease.check()  # if another consumer took over, that is the clearer reason
                raise
            committing += monotonic() - since
