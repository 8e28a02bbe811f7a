"""What a run displays, and sums up at the end, according to its log events."""

from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture
from tests.pages import blocks

from consumer.monitoring.screen import Tally, how_far, summed_up
from consumer.queries.application import STOPPING

MICRO_BATCH = {"stream": "events", "files": 10, "bytes": 5, "bronze": 700, "dead_letters": 1, "seconds": 1.5}


def tally_of(*events: tuple[str, dict[str, Any]]) -> Tally:
    tally = Tally()
    log = structlog.wrap_logger(structlog.PrintLogger(), processors=[tally, LogCapture()])
    for event, fields in events:
        log.info(event, **fields)
    return tally


def test_it_adds_up_what_became_of_each_stream_in_the_order_of_the_layers() -> None:
    tally = tally_of(
        ("started", {"query": "silver-events"}),
        ("gold micro-batch", {"product": "by_user", "micro_batches": "0 to 1", "rows": 3}),
        ("silver micro-batch", {"stream": "events", "kept": 1_399, "duplicates": 1, "conflicts": 2, "late": 0}),
        ("samples micro-batch", {"product": "sensor_samples", "samples": 4, "anomalies": 1}),
        ("micro-batch", MICRO_BATCH),
        ("micro-batch", MICRO_BATCH),
        ("micro-batch", {"stream": "clicks", "files": 1, "done": "before"}),
        ("sent", {"table": "silver.events", "topic": "t", "messages": 1}),
        ("published", {"table": "gold.by_user", "file": "f", "windows": 3}),
    )
    assert summed_up(tally, 11.6) == [
        "Done in 12 s: 21 files.",
        "  bronze.events           1,400 rows, 2 dead letters",
        "  silver.events           1,399 kept, 1 duplicate, 2 conflicts, 0 late",
        "  gold.by_user            3 windows written",
        "  gold.sensor_samples     4 samples, 1 anomaly",
        "  topic of silver.events  1 message",
        "  files of gold.by_user   3 windows",
    ]


def test_the_page_about_monitoring_shows_such_lines() -> None:
    (shown,) = (block for block in blocks("docs/operations/monitor.md", "text") if block.startswith("Done"))
    bronze = {"stream": "events", "micro_batch": 0, "files": 300, "bronze": 284_931, "dead_letters": 15_069}
    tally = tally_of(
        ("micro-batch", bronze),
        ("silver micro-batch", {"stream": "events", "kept": 284_931, "duplicates": 0, "conflicts": 0, "late": 0}),
        ("gold micro-batch", {"product": "user_activity", "micro_batches": "0 to 0", "rows": 1_000}),
    )
    assert summed_up(tally, 12) == shown.splitlines()


def test_a_mode_is_summed_up_too() -> None:
    counts = {"kept": 5, "duplicates": 2, "late": 0, "bad": 1}
    tally = tally_of(("micro-batch", {"mode": "dedupe", "number": 0, "messages": 8, **counts}))
    assert summed_up(tally, 3.2) == ["Done in 3 s.", "  dedupe  8 messages, 5 kept, 2 duplicates, 0 late, 1 bad"]


def test_it_says_if_there_was_nothing() -> None:
    assert summed_up(tally_of(("started", {"stream": "events", "waiting": {"files": 0}})), 5.0) == [
        "Done in 5 s. Nothing new has landed."
    ]


def test_a_run_that_was_stopped_says_what_is_left() -> None:
    waiting = ("started", {"stream": "events", "waiting": {"files": 25}})
    tally = tally_of(waiting, ("micro-batch", MICRO_BATCH), (STOPPING, {}))
    assert summed_up(tally, 4.0) == ["Stopped after 4 s: 10 of 25 files.", "  bronze.events  700 rows, 1 dead letter"]
    assert summed_up(tally_of((STOPPING, {})), 2.0) == ["Stopped after 2 s."]


def test_how_far_a_run_is_counts_the_share_of_what_is_being_judged() -> None:
    tally = tally_of(
        ("started", {"stream": "events", "waiting": {"files": 25}}),
        ("started", {"stream": "clicks", "waiting": {"files": 5}}),
        ("micro-batch", MICRO_BATCH),
        ("judging", {"stream": "events", "files": 10, "jobs": "a"}),
        ("judging", {"stream": "clicks", "files": 4, "jobs": "b"}),
    )
    assert how_far(tally) == "10 of 30 files."
    tally.look({"a": 0.5, "b": 0.25}.__getitem__)
    assert how_far(tally) == "16 of 30 files."
    tally.look({"a": 0.0, "b": 1.0}.__getitem__)  # the jobs of `a` have ended
    assert how_far(tally) == "19 of 30 files."
    tally(None, "info", {"event": "micro-batch", "stream": "clicks", "files": 4})
    tally(None, "info", {"event": "micro-batch", "stream": "events", "files": 16})
    assert how_far(tally) == "30 of 30 files. Finishing …"


def test_of_a_topic_offsets_are_counted() -> None:
    tally = tally_of(
        ("started", {"stream": "events", "waiting": {"offsets": 1_200}}),
        ("micro-batch", {"stream": "events", "partitions": 2, "offsets": 1_200, "bronze": 1_200, "dead_letters": 0}),
    )
    assert how_far(tally) == "1,200 of 1,200 offsets. Finishing …"
    assert summed_up(tally, 9)[0] == "Done in 9 s: 1,200 offsets."


def test_a_run_that_does_not_know_how_much_there_is_only_runs() -> None:
    assert how_far(tally_of(("started", {"query": "dedupe"}))) == "Running …"
    assert how_far(tally_of()) == "Starting Spark …"
    assert how_far(tally_of(("started", {"waiting": {"files": 0}}))) == "Nothing new has landed."


@pytest.mark.parametrize(
    "event", [{"event": "stopped", "query": "q"}, {"event": "judging", "stream": "events", "jobs": "a"}]
)
def test_lines_that_say_nothing_beside_the_bar_are_dropped(event: dict[str, Any]) -> None:
    with pytest.raises(structlog.DropEvent):
        Tally()(None, "info", event)
