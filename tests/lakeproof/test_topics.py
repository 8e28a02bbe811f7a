"""The start of a stream in its topic, from settings."""

from datetime import UTC, datetime

import pytest

from lakeproof.errors import UsageError
from lakeproof.topics import starting_offsets


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("2026-11-22T07:00:00+01:00", datetime(2026, 11, 22, 6, tzinfo=UTC)),
        ('{"0": 42, "1": 0}', {0: 42, 1: 0}),
    ],
)
def test_where_a_stream_begins(text: str, expected: object) -> None:
    assert starting_offsets(text) == expected


@pytest.mark.parametrize(
    "text", ["", "soon", "2026-11-22T07:00:00", '{"0": -1}', '{"x": 1}', '{"0": true}', "{", "[0]"]
)
def test_what_is_no_beginning_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected earliest, latest, a time or offsets"):
        starting_offsets(text)
