"""What a run sums up, from what it logs."""

import pytest
import structlog
from structlog.testing import LogCapture

from consumer.screen import Tally


@pytest.fixture
def logged() -> Tally:
    tally = Tally()
    log = structlog.wrap_logger(structlog.PrintLogger(), processors=[tally, LogCapture()])
    log.info("started", stream="events")
    for rows in (700, 92):
        log.info("micro-batch", stream="events", files=10, bytes=5, bronze=rows, dead_letters=2, seconds=1.5)
    log.info("micro-batch", stream="clicks", partitions=1, offsets=1_200, done="before")
    log.info("silver micro-batch", stream="events", kept=790, duplicates=1, conflicts=1, late=0)
    log.info("gold micro-batch", product="by_user", micro_batches="0 to 1", rows=3)
    return tally


def test_it_adds_up_what_became_of_each_stream(logged: Tally) -> None:
    assert str(logged).split(" · ") == [
        "bronze.clicks: 1 partitions, 1,200 offsets",
        "bronze.events: 20 files, 792 rows to bronze, 4 dead letters",
        "gold.by_user: 3 windows written",
        "silver.events: 790 kept, 1 duplicates, 1 conflicts, 0 late",
    ]


def test_nothing_is_nothing_and_the_end_of_a_query_needs_no_line(logged: Tally) -> None:
    tally = Tally()
    assert not tally
    assert logged
    with pytest.raises(structlog.DropEvent):
        tally(None, "info", {"event": "stopped", "query": "bronze-events"})
