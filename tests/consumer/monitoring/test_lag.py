"""Number of events that a mode keeps per second, according to the commits that its checkpoint still has."""

from datetime import UTC, datetime, timedelta

import pytest

from consumer.monitoring.lag import per_second


@pytest.mark.parametrize(
    ("commits", "expected"),
    [
        ([], 0.0),
        ([(90, 600, 600)], 0.0),  # a minute ago
        ([(90, 600, 600), (30, 1_200, 600)], 10.0),
        ([(30, 600, 600), (10, 1_200, 600)], 20.0),  # the first two commits
        ([(10, 50_000, 100), (5, 50_500, 500), (0, 51_000, 500)], 100.0),  # earlier commits are not kept any more
    ],
)
def test_the_last_minute_counts(commits: list[tuple[int, int, int]], expected: float) -> None:
    now = datetime(2026, 11, 22, tzinfo=UTC)
    found = [(now - timedelta(seconds=ago), total, own) for ago, total, own in commits]
    assert per_second(found, now) == expected
