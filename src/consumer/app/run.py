"""Entry points of the commands: the queries of a run, the query of a mode, a rebuild."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import cache, partial

from py4j.protocol import Py4JError, Py4JNetworkError
from pyiceberg.catalog import Catalog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from consumer.layers.bronze.replay import Replay
from consumer.layers.bronze.tasks import warm_up_beside
from consumer.layers.rebuild import rebuild
from consumer.layers.registry import layers_of
from consumer.maintenance.maintain import Maintained, Skipped, maintain
from consumer.monitoring.screen import screen
from consumer.queries.alerts import AlertsQuery
from consumer.queries.application import Query, Started, run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.failures import explained
from consumer.queries.layer import LayerQuery
from consumer.queries.maintenance import MaintenanceQuery
from consumer.queries.mode import ModeQuery
from consumer.queries.past import PastQuery
from consumer.queries.replay import ReplayQuery, preview, report
from consumer.queries.trigger import Trigger
from consumer.removal.certificate import Erased
from consumer.removal.condition import Condition
from consumer.removal.erase import erase
from consumer.removal.retain import retain_all
from consumer.removal.retain_files import Retained
from consumer.scope import Period, Scope
from consumer.spark.session import PLANNING_ONLY, start_session
from lakeproof.contracts.model import Removable
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.history.apply import adopt
from lakeproof.kafka.modes import Mode
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog


def run_streams(
    scope: Scope, trigger: Trigger, source: str, period: Period | None, *, maintained: bool = False
) -> None:
    """Run streams from a kind of source, or a batch over the past of one stream, into the requested layers.

    With `maintained`, their tables are maintained meanwhile.
    """
    settings, streams = scope.settings, list(scope.contracts)
    queries: list[Query] = [
        PastQuery(settings, stream, period) if period else BronzeQuery(settings, stream, trigger, source)
        for stream in streams
    ]
    queries += [LayerQuery(settings, layer, trigger) for layer in layers_of(scope)]
    alerts = [
        AlertsQuery(settings, each, scope.contracts[each.stream], trigger)
        for each in scope.samples
        if each.alerts and source == "kafka" and not period
    ]
    queries += alerts
    if maintained:
        queries.append(MaintenanceQuery(settings, streams))
    settings = _with_cores(settings, sum(each.slots for each in alerts))
    _run(settings, queries, " ".join(streams), trigger, urgent=[each.name for each in alerts], watched=streams)


def run_replay(scope: Scope, wanted: Replay) -> str:
    """Replay dead letters of a stream, and fill the layers behind bronze; return lines that describe the result."""
    settings, (stream,) = scope.settings, scope.contracts
    trigger = Trigger(available_now=True)
    query = ReplayQuery(settings, stream, wanted)
    _run(settings, [query, *(LayerQuery(settings, layer, trigger) for layer in layers_of(scope))], stream, trigger)
    return report(query.done, wanted)


def run_preview(scope: Scope, wanted: Replay) -> str:
    """Describe the result of a dry run of a replay."""
    settings, (stream,) = scope.settings, scope.contracts
    start = partial(start_session, settings, f"lakeproof consumer {stream}", PLANNING_ONLY)
    try:
        return report(preview(settings, scope.contracts[stream], wanted, start), wanted, dry_run=True)
    except (Py4JError, PySparkException) as error:
        raise explained(error, settings, stream) from error


def run_maintenance(settings: Settings, streams: Sequence[str], skipped: Skipped, *, dry_run: bool) -> list[Maintained]:
    """Maintain the tables of streams, or all."""
    session = partial(start_session, settings, "lakeproof consumer maintain")
    return maintain(settings, streams, session, skipped, dry_run=dry_run)


def run_retention(
    settings: Settings,
    streams: Sequence[str],
    older_than: timedelta | None,
    archive: str | None,
    *,
    what: Sequence[Removable],
    in_source: bool,
    dry_run: bool,
) -> list[Retained]:
    """Remove the expired files and rows of streams."""
    session = cache(partial(start_session, settings, "lakeproof consumer retain"))
    try:
        return retain_all(
            settings, streams, older_than, archive, session, what=what, in_source=in_source, dry_run=dry_run
        )
    except (Py4JError, PySparkException) as error:
        raise explained(error, settings, streams[0]) from error


def run_erasure(
    settings: Settings, stream: str, condition: Condition, *, dry_run: bool, keep_landed: bool, in_source: bool
) -> Erased:
    """Erase a person from a stream."""
    session = partial(start_session, settings, f"lakeproof consumer erase {stream}")
    try:
        return erase(
            settings, stream, condition, session, dry_run=dry_run, keep_landed=keep_landed, in_source=in_source
        )
    except (Py4JError, PySparkException) as error:
        raise explained(error, settings, stream) from error


def run_mode(settings: Settings, mode: Mode, trigger: Trigger) -> None:
    """Run a mode on Kafka alone."""
    _run(settings, [ModeQuery(settings, mode, trigger)], mode.name, trigger, watched=[mode.name])


def run_rebuild(scope: Scope) -> str:
    """Fill a layer again; return a line that describes the result."""
    settings = scope.settings
    layer = next(each for each in layers_of(scope) if each.tables)

    def adopt_contract(catalog: Catalog) -> None:
        adopt(catalog, settings, layer.stream, ContractLog(settings.state.database))

    session = partial(start_session, settings, f"lakeproof rebuild {layer.tables[-1]}")
    try:
        # A product follows the contract under which silver was filled.
        return rebuild(settings, layer, session, adopt_contract if scope.silver else None)
    except (Py4JError, PySparkException) as error:
        raise explained(error, settings, layer.stream) from error


def _run(
    settings: Settings,
    queries: Sequence[Query],
    what: str,
    trigger: Trigger,
    urgent: Sequence[str] = (),
    watched: Sequence[str] = (),
) -> None:
    """Run queries, and let other programs watch streams or a mode."""

    def start() -> SparkSession:
        weights = {each.name: each.weight for each in queries}
        session = start_session(settings, f"lakeproof consumer {what}", PLANNING_ONLY, urgent=urgent, weights=weights)
        return warm_up_beside(session)  # while the queries find out where to resume

    try:
        with ExitStack() as around:
            started = list(_watchers(settings, queries, watched, around, trigger))
            around.enter_context(screen(available_now=trigger.available_now))
            run_queries(settings, queries, start, available_now=trigger.available_now, started=started)
    except (Py4JNetworkError, ConnectionError) as error:
        raise LakeproofError(
            "Spark's JVM exited: it was killed or ran out of memory.",
            f"Committed data is safe. Run the command again to resume. Details: {settings.logs / 'spark.log'}",
        ) from error


def _watchers(
    settings: Settings, queries: Sequence[Query], watched: Sequence[str], around: ExitStack, trigger: Trigger
) -> Iterator[Started]:
    """Start the reporting of a run to other programs; yield callbacks for when the queries are started."""
    if watched and settings.monitor.metrics:
        from consumer.monitoring.monitor import monitored

        yield around.enter_context(monitored(settings, queries, watched, available_now=trigger.available_now))
    if watched and settings.monitor.lineage:
        try:
            from consumer.monitoring.lineage import traced
        except ModuleNotFoundError as error:
            raise UsageError(
                f"LAKE_LINEAGE needs the package openlineage-python: {error}.",
                "Install it: pip install openlineage-python. Or unset LAKE_LINEAGE.",
            ) from error
        yield around.enter_context(traced(settings, queries, available_now=trigger.available_now))


def _with_cores(settings: Settings, held: int) -> Settings:
    """Return the settings with more Spark cores on this machine: cores that are held or kept free mostly wait."""
    if not held or settings.spark.master != "local[*]":
        return settings
    master = f"local[{(os.cpu_count() or 1) + held}]"
    return settings.model_copy(update={"spark": settings.spark.model_copy(update={"master": master})})
