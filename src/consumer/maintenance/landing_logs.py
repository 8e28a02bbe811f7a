"""Maintenance of landing logs: for files that landed long ago, only hashes of their names are kept."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import structlog

from consumer.iceberg.marker import committed
from lakeproof.catalog import catalog_errors, open_catalog, table_or_none
from lakeproof.checkpoint import bronze_query
from lakeproof.kafka.recorded import recorded_topic
from lakeproof.settings import Settings
from lakeproof.state.landing_log import LandingLog, Position
from lakeproof.tables.names import stream_tables

log = structlog.get_logger()

KEPT_WHOLE = timedelta(days=30)
_MOST = 500  # maximum number of times that a log is shortened in a row


def shorten_logs(settings: Settings, names: Sequence[str] = (), is_ending: Callable[[], bool] = lambda: False) -> None:
    """Shorten the landing logs of streams, or of all if none is named, up to the position of their ledgers."""
    before = datetime.now(UTC) - KEPT_WHOLE
    with catalog_errors():
        catalog = open_catalog(settings)
        for stream in names or settings.streams:
            ledger = table_or_none(catalog, stream_tables(stream).ledger)
            newest = committed(ledger.properties, bronze_query(stream)) if ledger else None
            if ledger is None or newest is None or recorded_topic(ledger.properties):
                continue
            landed = LandingLog(settings.state.database, stream)
            if not landed.has(Position.parse(newest.marker.end)):
                continue  # a lost or foreign log, which the next run rebuilds or refuses
            # A checkpoint may begin the newest micro-batch again.
            end = Position.parse(newest.marker.start).seq - settings.landing.max_files_per_micro_batch
            shortened = 0
            for _ in range(_MOST):
                some = 0 if is_ending() else landed.shorten(end, before)
                if not some:
                    break
                shortened += some
            if shortened:
                log.info("landing log shortened", stream=stream, files=shortened)
