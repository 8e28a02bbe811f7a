"""The query that replays dead letters: a variant of the stream's own query, like a batch over the past.

It uses the stream's lease, so that the two take turns, and the stream's numbers and markers, so that all layers behind
bronze process its rows. It does not read the source, which may be gone, except units too large for a dead letter.
"""

from collections.abc import Callable, Mapping
from typing import Any

import structlog
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from consumer.layers.base import run
from consumer.layers.bronze.replay import Replay, ReplayLayer
from consumer.layers.bronze.replayed import Replayed
from consumer.queries.bronze import BronzeQuery
from consumer.queries.bulletin import Bulletin
from consumer.queries.following import Following, follow
from consumer.queries.layer import ARROW_LIMITS
from consumer.queries.trigger import Trigger
from consumer.sources.kafka.schema_ids import SchemaIds
from consumer.sources.registry import SOURCES
from consumer.sources.source import Source
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import Contract
from lakeproof.errors import UsageError
from lakeproof.history.apply import adopt, plan
from lakeproof.install.judges import judge_choice
from lakeproof.kafka.recorded import recorded_topic, with_recorded_topic
from lakeproof.settings import Settings
from lakeproof.state.breaker_log import Trip
from lakeproof.state.contract_log import ContractLog
from lakeproof.tables.names import ReplayOutcome, stream_tables
from lakeproof.wording import count_of

log = structlog.get_logger()

_SHOWN_BYTES = 100


class ReplayQuery(BronzeQuery):
    """A replay of dead letters of a stream. A paused micro-batch has no dead letters yet."""

    pausing = None
    spark_settings: Mapping[str, str] = {
        **BronzeQuery.spark_settings,
        # The dead letters are joined with their attempts.
        "spark.sql.adaptive.enabled": "true",
        **ARROW_LIMITS,
    }

    def __init__(self, settings: Settings, stream: str, wanted: Replay) -> None:
        super().__init__(settings, stream, Trigger(available_now=True))
        self._wanted = wanted

    @property
    def done(self) -> Replayed:
        """Results of the replay."""
        return self._prepared.replaying.done

    def prepare(self) -> None:
        """Make the contract current, and read the position of the tables. Nothing new is discovered."""
        catalog = open_catalog(self._settings)
        self._source, source, settings = _source_of(catalog, self._settings, self.stream)
        schema_ids = SchemaIds(settings, self.stream)
        contract = adopt(catalog, self._settings, self.stream, ContractLog(self._settings.state.database))
        schema_ids.prepare(contract)
        self.plan(catalog, source, contract, schema_ids)
        self._prepared.replaying.prepare()
        self._prepared.replaying.ask(self._wanted)

    def start(self, spark: SparkSession, bulletin: Bulletin) -> Following:
        """Start the replay. It is finished once each dead letter was tried."""
        prepared, held = self._prepared, self._lease

        def look(session: SparkSession) -> bool:
            letters = prepared.replaying.next(session, prepared.contract.digest)
            if letters is None:
                return False
            run(prepared.replaying, session, letters, held)
            self.micro_batches += 1
            return True

        about = {"stream": self.stream, "judge": str(judge_choice(self._settings.judge)), "mode": "replay"}
        return follow(spark, self.name, look, self._trigger.seconds, bulletin, about=about)

    def _wants(self, trip: Trip) -> bool:  # noqa: ARG002 - it is left to the stream
        """Return whether this run would take a paused micro-batch."""
        return False

    def _resume(self, catalog: Catalog, source: Source[Any]) -> None:
        """Do nothing: the source is not read."""


def preview(
    settings: Settings, contract: Contract, wanted: Replay, start_session: Callable[[], SparkSession]
) -> Replayed:
    """Judge the dead letters that would be replayed, without changing anything."""
    stream = contract.stream
    with catalog_errors():
        catalog = open_catalog(settings)
        kind, source, _ = _source_of(catalog, settings, stream)
        planned = plan(catalog, settings, stream)
        tried = catalog.table_exists(stream_tables(stream).attempts)
    if planned.columns:
        log.warning("not applied yet", contract=contract.version, hint=f"Run `lakeproof contract apply {stream}`.")
    layer = ReplayLayer(settings, stream, source, of_topic=kind == "kafka")
    layer.ask(wanted)
    spark = start_session()
    for name, value in ReplayQuery.spark_settings.items():
        spark.conf.set(name, value)
    return layer.preview(spark, contract, tried=tried)


def report(done: Replayed, wanted: Replay, *, dry_run: bool = False) -> str:
    """Describe the outcomes of a replay, or of its dry run, by reason."""
    if not done.letters:
        return "No dead letters to replay." if not wanted.choice.where else "No dead letters meet the condition."
    totals = dict.fromkeys(ReplayOutcome, 0)
    for (_, outcome, _), count in done.fates.items():
        totals[outcome] += count
    landed = sum(count for (_, reasons), count in done.outcomes.items() if reasons is None)
    left = sum(count for (_, reasons), count in done.outcomes.items() if reasons is not None)
    each = ", ".join(f"{count:,} {outcome}" for outcome, count in totals.items() if count)
    words = "would be" if dry_run else "were"
    lines = [f"{count_of(done.letters, 'dead letter')} {words} replayed: {each}."]
    lines.append(f"Bronze {'would get' if dry_run else 'got'} {count_of(landed, 'row')}.")
    if left:
        new = "a new dead letter" if left == 1 else "new dead letters"
        lines.append(f"{count_of(left, 'part')} of batches {'would be' if dry_run else 'became'} {new}.")
    for fate, count in sorted(done.fates.items(), key=lambda item: (-item[1], item[0])):
        had, outcome, why = fate
        lines.append(f"  {had}: {count:,} {outcome}{f' by {why}' if why and why != had else ''}")
        for example in done.examples.get(fate, ()):
            said = "; ".join(f"{fault.path}: {fault.detail}" for fault in example.reasons)
            lines.append(
                f"    {_shown(example.source)}, position {example.position}: {_shown(said) or _raw(example.raw)}"
            )
    if dry_run:
        lines.append("Nothing was changed. Leave out --dry-run to replay them.")
    elif totals[ReplayOutcome.PARKED]:
        lines.append("Parked dead letters are replayed again with --parked.")
    return "\n".join(lines)


def _source_of(catalog: Catalog, settings: Settings, stream: str) -> tuple[str, Source[Any], Settings]:
    """Return the kind of source that filled the tables of a stream, the source, and settings with its topic."""
    ledger = stream_tables(stream).ledger
    if not catalog.table_exists(ledger):
        raise UsageError(f"{stream} has no tables yet: nothing has landed.", f"Run `consumer run {stream}` first.")
    properties = catalog.load_table(ledger).properties
    kind = "kafka" if recorded_topic(properties) else "files"
    settings = with_recorded_topic(settings, properties)
    source = SOURCES[kind](settings, stream, bronze_query(stream), True)
    source.recall(catalog)
    return kind, source, settings


def _raw(raw: bytes) -> str:
    return _shown(raw[:_SHOWN_BYTES].decode(errors="backslashreplace"))


def _shown(text: str) -> str:
    """Escape control characters, which could confuse a terminal."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
