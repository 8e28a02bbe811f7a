"""The query from the source to bronze: the checkpoint records what a micro-batch holds before it is judged."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import structlog
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from consumer.iceberg.newest import Standing, standing
from consumer.layers.base import complete, run
from consumer.layers.bronze.land import BronzeLayer
from consumer.layers.bronze.replay import ReplayLayer
from consumer.queries.application import Query
from consumer.queries.bulletin import Bulletin
from consumer.queries.failures import explained
from consumer.queries.following import follow
from consumer.queries.running import Paused, Running
from consumer.queries.trigger import Trigger
from consumer.sources.kafka.schema_ids import SchemaIds
from consumer.sources.registry import SOURCES
from consumer.sources.source import Held, Source
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.checkpoint import CheckpointWriter, bronze_query
from lakeproof.contracts import Contract, load_contract
from lakeproof.errors import LakeproofError, PausedError
from lakeproof.history.apply import adopt
from lakeproof.install.judges import judge_choice
from lakeproof.settings import Settings
from lakeproof.state.breaker_log import BreakerLog, QueryKind, Trip
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import Lease
from lakeproof.tables.names import stream_tables

log = structlog.get_logger()


@dataclass(frozen=True)
class _Prepared:
    contract: Contract
    source: Source[Any]
    layer: BronzeLayer[Any]
    replaying: ReplayLayer
    found: Standing

    @property
    def is_interrupted(self) -> bool:
        """Whether a micro-batch must be finished before anything else."""
        return self.found.unfinished is not None or self.found.is_replaying


class BronzeQuery(Query):
    """The query of one stream. `source` is a kind of the registry."""

    pausing: QueryKind | None = QueryKind.STREAM
    """Kind of paused micro-batches that the query judges again; None for none."""

    spark_settings: Mapping[str, str] = {
        # Only recovery shuffles, and few rows: more partitions would only add scheduling overhead.
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.enabled": "false",
    }

    def __init__(self, settings: Settings, stream: str, trigger: Trigger, source: str = "files") -> None:
        self._settings = settings
        self._trigger = trigger
        self._source = source
        self._plan: _Prepared | None = None
        self._held: Lease | None = None
        self._position = ""  # the end of the newest micro-batch
        self._next: Held[Any] | None = None  # the micro-batch that was begun
        self.stream = stream
        self.name = bronze_query(stream)
        self.lease_name = stream
        of_topic = source == "kafka"
        self.reads = [f"kafka:{settings.topic_of(stream)}" if of_topic else f"{settings.landing.uri}/{stream}"]
        names = stream_tables(stream)
        self.writes = [names.bronze, names.dead_letters, names.ledger]

    def prepare(self) -> None:
        """Create what is missing, make the contract current, and read the position of the tables."""
        settings, stream = self._settings, self.stream
        catalog = open_catalog(settings)
        source = SOURCES[self._source](settings, stream, self.name, self._trigger.available_now)
        if not catalog.table_exists(stream_tables(stream).bronze):
            source.check_without_tables()
        schema_ids = SchemaIds(settings, stream)
        schema_ids.check(load_contract(settings.contracts, stream))
        contract = adopt(catalog, settings, stream, ContractLog(settings.state.database))
        source.prepare(catalog)
        if self._source == "files":
            self.reads = [source.root]
        schema_ids.prepare(contract)
        self.plan(catalog, source, contract, schema_ids)
        if not self._prepared.is_interrupted:
            self._resume(catalog, source)

    def plan(self, catalog: Catalog, source: Source[Any], contract: Contract, schema_ids: SchemaIds) -> None:
        """Read the position of the tables, and set up the layers that fill them."""
        settings, stream = self._settings, self.stream
        layer = BronzeLayer(settings, stream, source, schema_ids.of)
        of_topic = self._source == "kafka"
        replaying = ReplayLayer(settings, stream, source, of_topic=of_topic, schema_id_of=schema_ids.of)
        self._plan = _Prepared(contract, source, layer, replaying, self._standing(catalog, source))

    def resume(self, spark: SparkSession, held: Lease) -> None:
        """Finish an interrupted micro-batch of the source or of a replay, and find where to resume."""
        self._held, plan = held, self._prepared
        if begun := plan.found.unfinished:
            totals = complete(plan.layer, spark, plan.layer.unfinished(spark, begun), held)
            log.warning("finished an interrupted micro-batch", checkpoint=begun.checkpoint_id, **totals)
        if plan.found.is_replaying:
            totals = complete(plan.replaying, spark, plan.replaying.interrupted(spark), held)
            log.warning("finished an interrupted replay", **totals)
        if plan.is_interrupted:
            self._resume_again(plan.source)
        self._take_paused(spark, held)

    def start(self, spark: SparkSession, bulletin: Bulletin) -> Running:
        """Start the query."""
        if self.paused:
            return Paused()
        source, trigger = self._prepared.source, self._trigger
        about = {
            "stream": self.stream,
            "landing": source.root,
            "contract": self._prepared.contract.version,
            "judge": str(judge_choice(self._settings.judge)),
            "mode": "available now" if trigger.available_now else f"every {trigger.every}",
            "waiting": source.waiting(),
        }
        seconds, at_once = trigger.seconds, trigger.available_now
        look = partial(self.look, bulletin=bulletin)
        return follow(spark, self.name, look, seconds, bulletin, at_once=at_once, about=about)

    def look(self, spark: SparkSession, bulletin: Bulletin) -> bool:
        """Take the next micro-batch of the source; return whether there was one."""
        source, checkpoint = self._prepared.source, self._checkpoint
        # A look that is repeated takes the same micro-batch: some of its tables may have it.
        self._next = held = self._next or source.next(self._position, spark.sparkContext.defaultParallelism)
        if held is None:
            return False
        self._lease.check()
        number = checkpoint.begin(*(source.offset(each, held.contract) for each in (held.start, held.end)))
        try:
            self.take(spark, held, checkpoint.id, number)
        except PausedError as error:
            self.paused = error
            bulletin.note_backlog(self.name, there_is=False)  # what waits for the pause delays nobody
            raise
        checkpoint.commit()
        # An endless stream takes the rest at its next trigger only, and nobody should wait for that.
        bulletin.note_backlog(self.name, there_is=held.more and self._trigger.available_now)
        self._position, self._next = held.end, None
        return True

    def take(self, spark: SparkSession, held: Held[Any], checkpoint_id: str, micro_batch_id: int) -> None:
        """Judge and append a micro-batch, unless that has been done."""
        layer = self._prepared.layer
        run(layer, spark, layer.landed(held, checkpoint_id, micro_batch_id), self._lease)
        self.micro_batches += 1

    def explain(self, error: Exception) -> LakeproofError:
        """Return the reason for a failure: the error of a micro-batch, an unavailable dependency, or Spark's error."""
        failure = self.paused or error
        if self._plan and not isinstance(failure, LakeproofError):
            try:
                self._plan.source.check()
            except LakeproofError as found:
                return found
        return explained(failure, self._settings, self.stream)

    @cached_property
    def _checkpoint(self) -> CheckpointWriter:
        return CheckpointWriter(self._settings, self.name, self._prepared.source.parse_offset)

    def _take_paused(self, spark: SparkSession, held: Lease) -> None:
        """Judge paused micro-batches again under the current contract, before the source is split differently."""
        if self.pausing is None:
            return
        source, layer = self._prepared.source, self._prepared.layer
        breakers = BreakerLog(self._settings.state.database, self.stream)
        for trip in breakers.paused(self.pausing):
            if not self._wants(trip):
                continue
            with catalog_errors():
                accounted = self._standing(open_catalog(self._settings), source).accounted
            now = source.still_next(trip.start, trip.end, accounted)
            if now is None:
                log.info("a pause has ended: its micro-batch is not next", stream=self.stream)
                breakers.end(trip)
                continue
            parts = source.held_between(*now, lambda: ())
            again = Held(parts, *now, self._prepared.contract.digest)
            try:
                run(layer, spark, replace(layer.landed(again, trip.checkpoint_id, 0), paused=trip), held)
            except PausedError as error:
                self.paused = error
                return
            self.micro_batches += 1
            self._resume_again(source)

    def _wants(self, trip: Trip) -> bool:  # noqa: ARG002 - for a batch over the past
        """Return whether this run would take a paused micro-batch."""
        return True

    def _resume_again(self, source: Source[Any]) -> None:
        with catalog_errors():
            self._resume(open_catalog(self._settings), source)

    def _standing(self, catalog: Catalog, source: Source[Any]) -> Standing:
        return standing(catalog, stream_tables(self.stream), self.name, source.is_origin)

    def _resume(self, catalog: Catalog, source: Source[Any]) -> None:
        accounted = self._standing(catalog, source).accounted
        self._position = source.resume(catalog.load_table(stream_tables(self.stream).ledger), accounted)

    @property
    def _lease(self) -> Lease:
        if self._held is None:
            raise RuntimeError("A query is resumed before it is started.")
        return self._held

    @property
    def _prepared(self) -> _Prepared:
        if self._plan is None:
            raise RuntimeError("A query is prepared before it is resumed.")
        return self._plan
