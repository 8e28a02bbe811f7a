"""The comparison and the timing in the benchmark of replays."""

from collections import Counter

from benchmarks.replay import fates_of
from benchmarks.sides.command import seconds_of


def test_a_forecast_is_compared_as_attempts_say_it() -> None:
    changes = [
        {"change": "to_bronze", "reasons": "not_allowed", "new_reasons": None, "units": 7},
        {"change": "stays", "reasons": "wrong_type", "new_reasons": "wrong_type", "units": 2},
        {"change": "other_reasons", "reasons": "not_allowed+wrong_type", "new_reasons": "wrong_type", "units": 1},
    ]
    assert fates_of({"changes": changes}) == Counter(
        {
            ("not_allowed", "closed", ""): 7,
            ("wrong_type", "failed", "wrong_type"): 2,
            ("not_allowed+wrong_type", "failed", "wrong_type"): 1,
        }
    )


def test_a_command_is_timed_from_the_start_of_its_stream_to_the_end() -> None:
    lines = [
        "not JSON",
        '{"event": "started", "stream": "other", "timestamp": "2026-11-25T10:00:00Z"}',
        '{"event": "started", "stream": "events", "timestamp": "2026-11-25T10:00:01Z"}',
        '{"event": "started", "query": "bronze-events", "timestamp": "2026-11-25T10:00:02Z"}',
        '{"event": "stopped", "query": "bronze-events", "timestamp": "2026-11-25T10:00:03.5Z"}',
        '{"event": "stopped", "query": "silver-events", "timestamp": "2026-11-25T10:00:09Z"}',
    ]
    assert seconds_of(lines) == 2.5
    assert seconds_of([]) == 0
