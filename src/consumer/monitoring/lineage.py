"""OpenLineage: the inputs and outputs of a running application, as events of one run for each query.

A query has a START event, a RUNNING event now and then if it has committed something, and finally COMPLETE, FAIL or
ABORT. Its output is counted from the commits in its tables. A separate thread sends the events, as configured by
OpenLineage's own settings; failures are logged, and never stop a query.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import structlog
from openlineage.client import OpenLineageClient, set_producer
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
    symlinks_dataset,
)
from openlineage.client.naming.dataset import S3, Kafka, LocalFileSystem
from openlineage.client.uuid import generate_new_uuid
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.types import ListType, MapType, NestedField, StructType

from consumer.iceberg.marker import property_of
from consumer.queries.application import Query, Started
from consumer.queries.bulletin import Bulletin
from consumer.queries.running import Running
from lakeproof.addresses import without_password
from lakeproof.catalog import open_catalog
from lakeproof.errors import UsageError
from lakeproof.logs import Forward
from lakeproof.settings import Settings
from lakeproof.state.failures import failures
from lakeproof.storage.local import local_path
from lakeproof.wording import first_line

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

log = structlog.get_logger()

_END_SECONDS = 10.0  # how long the end of a run waits for its last events
_CONSOLE = "openlineage.client.transport.console"
_KAFKA = "kafka"

Place = tuple[str, str]
"""Namespace and name of a dataset."""


@contextmanager
def traced(settings: Settings, queries: Sequence[Query], *, available_now: bool) -> Iterator[Started]:
    """Send the lineage of an application; yield a callback for when its queries are started."""
    lineage = Lineage(settings, queries, _client(), available_now=available_now)
    try:
        yield lineage.started
    except BaseException:
        lineage.end(failed=True)
        raise
    else:
        lineage.end(failed=False)


@dataclass
class _Written:
    """The output of a run to a table so far."""

    sequence_number: int = 0  # of the newest counted snapshot
    rows: int = 0
    bytes: int = 0
    files: int = 0


@dataclass
class _Run:
    """The run of a query."""

    query: Query
    began_at: datetime
    id: str
    is_known: bool = False  # whether its START event was sent
    commits: int = 0
    written: dict[str, _Written] = field(default_factory=dict)  # by table

    def count(self, name: str, table: "Table") -> None:
        """Count the query's commits to a table since the last call: their snapshots may expire later."""
        so_far = self.written.setdefault(name, _Written())
        before = so_far.sequence_number
        for snapshot in table.snapshots():
            number = snapshot.sequence_number or 0
            summary = snapshot.summary.additional_properties if snapshot.summary else {}
            is_own = property_of(self.query.name) in summary and snapshot.timestamp_ms >= _millis(self.began_at)
            if number > before and is_own:
                self.commits += 1
                so_far.sequence_number = max(so_far.sequence_number, number)
                so_far.rows += int(summary.get("added-records") or 0)
                so_far.bytes += int(summary.get("added-files-size") or 0)
                so_far.files += int(summary.get("added-data-files") or 0)


class Lineage:
    """Sends the events of an application."""

    def __init__(
        self, settings: Settings, queries: Sequence[Query], client: OpenLineageClient, *, available_now: bool
    ) -> None:
        now = datetime.now(UTC)  # before anything is committed
        self._settings = settings
        self._runs = [_Run(query, now, str(generate_new_uuid(now))) for query in queries if query.writes]
        self._client = client
        self._is_batch = available_now
        self._ending = Event()
        self._failed = False
        self._problem = ""
        self._thread = Thread(target=self._run, name="lineage", daemon=True)

    def started(self, _running: Mapping[str, Running], _bulletin: Bulletin) -> None:
        """Start sending events."""
        self._thread.start()

    def end(self, *, failed: bool) -> None:
        """Send the last events, and wait for them, but not for long."""
        self._failed = failed
        self._ending.set()
        if self._thread.ident:
            self._thread.join(_END_SECONDS)
            if self._thread.is_alive():
                log.warning("lineage was not sent", problem=f"no answer in {_END_SECONDS:.0f} s")

    def _run(self) -> None:
        self._try(self._send)
        while not self._ending.wait(self._settings.monitor.lineage_seconds):
            self._try(self._send)
        self._try(self._send_end)
        self._try(lambda: self._client.close(_END_SECONDS))

    def _try(self, work: Callable[[], object]) -> None:
        """Call `work`, which may fail: a failure is logged once, until it succeeds again."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - of any transport or catalog
            problem = f"{type(error).__name__}: {without_password(first_line(error))}"
            if not self._problem:
                log.warning("lineage was not sent", problem=problem)
            self._problem = problem
        else:
            self._problem = ""

    def _send(self) -> None:
        """Send START of each run, and later RUNNING, if its query has committed something since."""
        tables = _Tables(self._settings)
        for run in self._runs:
            before = run.commits
            facets = self._datasets(run, tables)
            if not run.is_known:
                self._emit(run, RunState.START, run.began_at, *facets)
                run.is_known = True
            elif run.commits > before:
                self._emit(run, RunState.RUNNING, datetime.now(UTC), *facets)

    def _send_end(self) -> None:
        """Send the end of each run; if one has failed, the others were aborted."""
        tables, failed = _Tables(self._settings), failures(self._settings.state.database) if self._failed else {}
        for run in self._runs:
            problem = failed.get(run.query.lease_name)
            state = RunState.FAIL if problem else RunState.ABORT if self._failed else RunState.COMPLETE
            facets = self._datasets(run, tables)
            if not run.is_known:
                self._emit(run, RunState.START, run.began_at, *facets)
                run.is_known = True
            self._emit(run, state, datetime.now(UTC), *facets, problem=problem or "")

    def _emit(
        self,
        run: _Run,
        state: RunState,
        at: datetime,
        inputs: list[InputDataset],
        outputs: list[OutputDataset],
        *,
        problem: str = "",
    ) -> None:
        engine = processing_engine_run.ProcessingEngineRunFacet(version=version("lakeproof"), name="lakeproof")
        facets: dict[str, Any] = {"processing_engine": engine}
        if problem:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(problem, "python")
        kind = job_type_job.JobTypeJobFacet(
            processingType="BATCH" if self._is_batch else "STREAMING", integration="LAKEPROOF", jobType="QUERY"
        )
        job = Job(self._settings.monitor.lineage_namespace, run.query.name, {"jobType": kind})
        self._client.emit(
            RunEvent(
                eventType=state, eventTime=at.isoformat(), run=Run(run.id, facets), job=job, inputs=inputs,
                outputs=outputs,
            )
        )  # fmt: skip

    def _datasets(self, run: _Run, tables: "_Tables") -> tuple[list[InputDataset], list[OutputDataset]]:
        """Return the inputs and outputs of a query, without tables that do not exist yet."""
        inputs = [
            InputDataset(*place, facets=facets) for each in run.query.reads for place, facets in tables.datasets(each)
        ]
        outputs = []
        for each in run.query.writes:
            for place, facets in tables.datasets(each):
                statistics: dict[str, Any] = {}
                if table := tables.table(each):
                    run.count(each, table)
                    written = run.written[each]
                    statistics["outputStatistics"] = (
                        output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                            rowCount=written.rows, size=written.bytes, fileCount=written.files
                        )
                    )
                outputs.append(OutputDataset(*place, facets=facets, outputFacets=statistics))
        return inputs, outputs


class _Tables:
    """Datasets at one point in time; each table is loaded once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._catalog: Catalog | None = None
        self._loaded: dict[str, Table | None] = {}

    def table(self, name: str) -> "Table | None":
        """Return a table; None if the name is not a table's, or the table does not exist."""
        if ":" in name:
            return None
        if name not in self._loaded:
            self._catalog = self._catalog or open_catalog(self._settings)
            try:
                self._loaded[name] = self._catalog.load_table(name)
            except NoSuchTableError:
                self._loaded[name] = None
        return self._loaded[name]

    def datasets(self, name: str) -> "Iterator[tuple[Place, dict[str, Any]]]":
        """Yield the place and facets of a dataset, by the name that a query uses."""
        if ":" in name:
            yield self._place(name), {}
        elif table := self.table(name):
            snapshot = table.current_snapshot()
            catalog = without_password(self._settings.catalog.uri)
            link = symlinks_dataset.Identifier(namespace=catalog, name=name, type="TABLE")
            facets: dict[str, Any] = {
                "schema": schema_dataset.SchemaDatasetFacet(fields=_fields(table.schema().fields)),
                "symlinks": symlinks_dataset.SymlinksDatasetFacet(identifiers=[link]),
            }
            if snapshot:
                facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(snapshot.snapshot_id))
            yield self._place(table.location()), facets

    def _place(self, uri: str) -> Place:
        """Return OpenLineage's namespace and name of a topic, a folder or a prefix."""
        scheme, _, rest = uri.partition(":")
        naming: Kafka | S3 | LocalFileSystem
        if scheme == _KAFKA:
            host, _, port = self._settings.kafka.bootstrap_servers.split(",")[0].rpartition(":")
            naming = Kafka(host, port, rest)
        elif scheme.startswith("s3"):
            bucket, _, key = rest.lstrip("/").partition("/")
            naming = S3(bucket, key or "/")
        else:
            naming = LocalFileSystem(str(local_path(uri)) if scheme == "file" else uri)
        return naming.get_namespace(), naming.get_name()


def _fields(fields: Iterable[NestedField]) -> list[schema_dataset.SchemaDatasetFacetFields]:
    """Return the fields of a schema, with nested fields of structs, lists and maps."""
    found = []
    for number, each in enumerate(fields, 1):
        kind = each.field_type
        inner: Sequence[NestedField] = ()
        if isinstance(kind, StructType):
            inner = kind.fields
        elif isinstance(kind, ListType):
            inner = [kind.element_field]
        elif isinstance(kind, MapType):
            inner = [kind.key_field, kind.value_field]
        found.append(
            schema_dataset.SchemaDatasetFacetFields(
                name=each.name,
                type=type(kind).__name__.removesuffix("Type").lower() if inner else str(kind),
                description=each.doc,
                ordinal_position=number,
                fields=_fields(inner),
            )
        )
    return found


def _client() -> OpenLineageClient:
    """Create the client from OpenLineage's own settings."""
    set_producer(f"urn:lakeproof:{version('lakeproof')}")
    console = logging.getLogger(_CONSOLE)
    console.setLevel(logging.INFO)
    console.handlers, console.propagate = [Forward()], False
    try:
        return OpenLineageClient()
    except Exception as error:
        raise UsageError(
            f"OpenLineage cannot be configured: {error}",
            "Correct OPENLINEAGE_URL or openlineage.yml, or unset LAKE_LINEAGE.",
        ) from error


def _millis(at: datetime) -> int:
    return int(at.timestamp() * 1000)
