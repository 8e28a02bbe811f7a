"""Prometheus metrics of an application: counters from its log events, and results of its last look at the lake.

Counters start at 0 with the process. Micro-batches are counted only by their log events.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from consumer.monitoring.query_status import Doing, QueryStatus
from consumer.monitoring.sizes import TableSize
from consumer.queries.application import Query
from lakeproof.checkpoint import bronze_query
from lakeproof.state.proofs import Proof, ProofOutcome

OTHER = "other"
"""The label of all values beyond the limit: contracts name reasons, and there may be many."""
_MOST_VALUES = 100
_LONGEST = 200
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_OUTCOMES = (
    "bronze", "dead_letters", "kept", "duplicates", "conflicts", "late", "bad", "rows", "samples", "anomalies",
    "messages", "windows", "closed", "failed", "parked",
)  # fmt: skip
_UNITS = ("files", "bytes", "offsets")
_DRIFT = ("rescued", "discarded")
_WARNINGS = ("warning", "error", "critical", "exception")


@dataclass(frozen=True)
class Look:
    """The result of a look at the lake."""

    at: datetime
    seconds: float  # duration of the look
    queries: Sequence[QueryStatus] = ()
    tables: Sequence[TableSize] = ()
    leases: Mapping[str, float] = field(default_factory=dict)  # when each expires, by name
    state: Mapping[str, int] = field(default_factory=dict)  # bytes of key indexes on this machine, by query
    proofs: Sequence[Proof] = ()  # the newest of each stream


class Metrics:
    """The metrics of an application; also a processor of structlog, which counts log events."""

    def __init__(self, queries: Sequence[Query], ready: Callable[[], bool]) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.looks = Looks(queries)
        self.registry.register(self.looks)
        self._known: dict[tuple[str, ...], set[str]] = {}
        self._rows = self._counter("rows", "Rows, dead letters, messages or windows, by outcome.", "query", "outcome")
        self._reasons = self._counter("dead_letters", "Dead letters by their set of reasons.", "query", "reasons")
        self._drift = self._counter(
            "drifted_values",
            "Values that violated the contract and were rescued or discarded.",
            "query",
            "policy",
            "reasons",
        )
        self._taken = self._counter("taken", "Files, bytes or offsets that were judged.", "query", "unit")
        self._seconds = Histogram(
            "consumer_micro_batch_seconds",
            "Duration of micro-batches, by phase: find the next input, compute, commit.",
            ["query", "phase"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._warnings = self._counter("warnings", "Logged warnings and errors.", "event")
        # An alert counts these: the first one is an increase only from 0.
        self._warnings.labels(self._capped("retention failed"))
        self._trips = self._counter("breaker_trips", "Trips of the breaker of a stream.", "query", "action")
        self._maintained = self._counter("maintenance", "Maintenances of a table, by outcome.", "table", "outcome")
        self._compacted = self._counter("maintenance_compacted_files", "Compacted data files.", "table")
        self._proven = self._counter(
            "maintenance_proven_rows", "Rows proven equal before and after a compaction.", "table"
        )
        self._orphans = self._counter("maintenance_removed_orphans", "Removed orphan files.", "table")
        self._maintained_at = Gauge(
            "consumer_maintenance_last_timestamp_seconds",
            "Time of this process's last maintenance of a table, by outcome.",
            ["table", "outcome"],
            registry=self.registry,
        )
        self._errors = self._counter(
            "metrics_errors", "Log lines that could not be counted, and failed reads of the lake's state."
        )
        Gauge("consumer_ready", "1 if `/readyz` answers 200.", registry=self.registry).set_function(
            lambda: float(ready())
        )
        Gauge("consumer_build_info", "Always 1.", ["version"], registry=self.registry).labels(version("lakeproof")).set(
            1
        )

    def __call__(self, _logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Count an event, and pass it on."""
        try:
            self._count(method, event)
        except Exception:  # noqa: BLE001 - after any error, the line is logged and the pipeline continues
            self._errors.inc()
        return event

    def failed(self) -> None:
        """Count a look that failed."""
        self._errors.inc()

    def _count(self, method: str, event: Mapping[str, Any]) -> None:
        what = str(event.get("event"))
        if method in _WARNINGS:
            self._warnings.labels(self._capped(what)).inc()
        if "phases" in event:
            self._count_micro_batch(str(event["query"]), event)
        elif what == "breaker tripped":
            self._trips.labels(bronze_query(event["stream"]), event["action"]).inc()
        elif what in ("maintained", "maintenance failed"):
            self._count_maintenance(event)

    def _count_micro_batch(self, query: str, event: Mapping[str, Any]) -> None:
        phases = dict(event["phases"])
        if "seconds" in event:
            phases["find"] = max(event["seconds"] - sum(phases.values()), 0.0)
        for phase, seconds in phases.items():
            self._seconds.labels(query, phase).observe(seconds)
        for outcome in _OUTCOMES:
            if isinstance(event.get(outcome), int):
                self._rows.labels(query, outcome).inc(event[outcome])
        for unit in _UNITS:
            if isinstance(event.get(unit), int):
                self._taken.labels(query, unit).inc(event[unit])
        for reasons, count in event.get("reasons", {}).items():
            self._reasons.labels(query, self._capped(reasons, query)).inc(count)
        for policy in _DRIFT:
            for reasons, count in event.get(policy, {}).items():
                self._drift.labels(query, policy, self._capped(reasons, query, policy)).inc(count)

    def _count_maintenance(self, event: Mapping[str, Any]) -> None:
        table = str(event.get("table", ""))
        compacted = event.get("compacted", ())
        outcome = "failed" if event.get("problem") else "busy" if event.get("busy") else "done"
        self._maintained.labels(table, outcome).inc()
        self._maintained_at.labels(table, outcome).set_to_current_time()
        self._compacted.labels(table).inc(sum(each["before"]["files"] for each in compacted))
        self._proven.labels(table).inc(sum(each["rows"] for each in compacted))
        self._orphans.labels(table).inc(event.get("orphans", 0))

    def _capped(self, value: str, *whose: str) -> str:
        """Return a value of a label, or :data:`OTHER` beyond the limit."""
        known = self._known.setdefault(whose, set())
        if value not in known and (len(known) >= _MOST_VALUES or len(value) > _LONGEST):
            return OTHER
        known.add(value)
        return value

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"consumer_{name}", help_text, labels, registry=self.registry)


class Looks(Collector):
    """The state of queries and tables as metrics, from the newest look only."""

    def __init__(self, queries: Sequence[Query]) -> None:
        self._queries = queries
        self.newest: Look | None = None

    def describe(self) -> Iterable[Any]:
        """Return nothing: metric names are not looked up at registration."""
        return ()

    def collect(self) -> Iterator[Any]:
        """Yield the metrics."""
        retries = CounterMetricFamily(
            "consumer_retries", "Retries of a query after a server was unavailable.", labels=["query"]
        )
        for query in self._queries:
            retries.add_metric([query.name], query.retries)
        yield retries
        if look := self.newest:
            yield _gauge("look_timestamp_seconds", "Time of the last read of tables, landing zone and topics.", look.at)
            yield _gauge("look_seconds", "Duration of the last read of tables, landing zone and topics.", look.seconds)
            yield from _of_queries(look)
            yield from _of_tables(look.tables)
            yield _gauges(
                "lease_expires_timestamp_seconds",
                "Time at which a lease expires unless it is renewed.",
                "lease",
                look.leases,
            )
            yield _gauges("state_bytes", "Bytes of key indexes on this machine.", "query", look.state)
            proofs = {each.stream: each for each in look.proofs}
            yield _gauges(
                "proof_timestamp_seconds",
                "Time of the last proof of a stream by `reader verify`, whatever its outcome.",
                "stream",
                {stream: each.proven_at.timestamp() for stream, each in proofs.items()},
            )
            yield _gauges(
                "proof_clean",
                "1 if the last proof of a stream found no fault.",
                "stream",
                {stream: float(each.outcome is ProofOutcome.CLEAN) for stream, each in proofs.items()},
            )
            yield _gauges(
                "proof_faults",
                "Number of faults in the last proof of a stream.",
                "stream",
                {stream: each.faults for stream, each in proofs.items()},
            )


def _of_queries(look: Look) -> Iterator[GaugeMetricFamily]:
    found = look.queries
    state = GaugeMetricFamily(
        "consumer_query_state", "1 for the current state of a query, 0 for the others.", labels=["query", "state"]
    )
    lag = GaugeMetricFamily(
        "consumer_lag",
        "Files, bytes, offsets or micro-batches that a query has yet to process.",
        labels=["query", "unit"],
    )
    breaker = GaugeMetricFamily(
        "consumer_breaker_timestamp_seconds",
        "Time at which the breaker of a stream paused it, during the pause, or warned, for a day.",
        labels=["query", "state"],
    )
    for each in found:
        for doing in Doing:
            state.add_metric([each.query, doing], float(each.state is doing))
        if each.lag is not None:
            lag.add_metric([each.query, each.unit], each.lag)
        if each.breaker:
            breaker.add_metric([each.query, each.breaker["state"]], each.breaker["at"].timestamp())
    yield from (state, lag, breaker)
    for name, help_text in (
        ("lag_seconds", "Waiting time of the oldest input that a query has yet to process."),
        ("freshness_seconds", "Time since the oldest record landed that is not in a query's table yet."),
    ):
        ages = {each.query: getattr(each, name) for each in found}
        yield _gauges(name, help_text, "query", {query: age for query, age in ages.items() if age is not None})
    for name, help_text, values in (
        (
            "last_commit_timestamp_seconds",
            "Time of the last commit of a query.",
            {each.query: each.last_commit for each in found},
        ),
        (
            "watermark_timestamp_seconds",
            "Greatest event time in silver, or the time before which windows are final.",
            {each.query: each.watermark for each in found},
        ),
    ):
        yield _gauges(name, help_text, "query", {query: at.timestamp() for query, at in values.items() if at})


def _of_tables(tables: Sequence[TableSize]) -> Iterator[GaugeMetricFamily]:
    for name, help_text in (
        ("rows", "Rows of a table."),
        ("files", "Data files of a table."),
        ("bytes", "Bytes of a table's data and delete files."),
        ("snapshots", "Snapshots of a table."),
        ("small_files", "Data files that maintenance would compact."),
    ):
        values = {each.table: getattr(each, name) for each in tables}
        yield _gauges(
            f"table_{name}", help_text, "table", {key: value for key, value in values.items() if value is not None}
        )
    yield _gauges(
        "table_rewritten_timestamp_seconds",
        "Time of the last compaction of a table by any program.",
        "table",
        {each.table: each.rewritten_at.timestamp() for each in tables if each.rewritten_at},
    )


def _gauge(name: str, help_text: str, value: float | datetime) -> GaugeMetricFamily:
    number = value.timestamp() if isinstance(value, datetime) else value
    return GaugeMetricFamily(f"consumer_{name}", help_text, value=number)


def _gauges(name: str, help_text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    found = GaugeMetricFamily(f"consumer_{name}", help_text, labels=[label])
    for key, value in values.items():
        found.add_metric([key], value)
    return found
