"""Options for the format of a timestamp: accepted and rejected ones, and the meaning of a change."""

from typing import Any

import pytest
from tests.lakeproof.contracts.read.test_lifecycle import parse

from lakeproof.contracts import ISO_8601, Contract, TimeForm, TimeFormat
from lakeproof.contracts.diff import changes
from lakeproof.errors import UsageError


def field(**options: Any) -> dict[str, Any]:
    return {"name": "t", "logicalType": "timestamp"} | ({"logicalTypeOptions": options} if options else {})


def time_of(contract: Contract) -> TimeForm:
    return contract.fields[-1].time


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ISO_8601),
        ({"format": "yyyy-MM-dd'T'HH:mm:ssXXX", "timezone": True}, ISO_8601),
        ({"format": "epoch_us", "timezone": False}, TimeForm(TimeFormat.EPOCH_US)),
        ({"format": "yyyy-MM-dd"}, TimeForm(TimeFormat.DATE)),
        ({"format": "yyyy-MM-dd", "defaultTimezone": "Etc/UTC"}, TimeForm(TimeFormat.DATE)),
        (
            {"format": "yyyy-MM-dd HH:mm:ss", "timezone": False, "defaultTimezone": "America/Argentina/Buenos_Aires"},
            TimeForm(TimeFormat.SPACE_LOCAL, "America/Argentina/Buenos_Aires"),
        ),
        (
            {"format": "yyyy-MM-dd HH:mm:ss[XXX]", "timezone": True, "defaultTimezone": "Etc/GMT+1"},
            TimeForm(TimeFormat.SPACE_ANY, "Etc/GMT+1"),
        ),
    ],
)
def test_a_form(options: dict[str, Any], expected: TimeForm) -> None:
    assert time_of(parse(field(**options))) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (field(format="ISO"), "unknown format 'ISO'"),
        (field(format="epoch"), "unknown format 'epoch'"),
        (field(format=5), "unknown format 5"),
        (field(format="yyyy-MM-dd HH:mm:ss"), "have no UTC offset, and no zone is set"),
        (field(format="yyyy-MM-dd HH:mm:ss", defaultTimezone="Mars/Base"), "unknown time zone 'Mars/Base'"),
        (field(format="yyyy-MM-dd HH:mm:ss", defaultTimezone="CEST"), "unknown time zone 'CEST'"),
        (field(format="yyyy-MM-dd HH:mm:ss", defaultTimezone="localtime"), "unknown time zone 'localtime'"),
        (field(format="yyyy-MM-dd HH:mm:ss", defaultTimezone="right/Europe/Berlin"), "unknown time zone"),
        (field(format="yyyy-MM-dd HH:mm:ss", defaultTimezone="../../etc/passwd"), "unknown time zone"),
        (field(format="yyyy-MM-dd HH:mm:ss", defaultTimezone="America/Argentina"), "unknown time zone"),
        (field(format="yyyy-MM-dd HH:mm:ss", defaultTimezone=1), "unknown time zone 1"),
        (field(format="epoch_ms", defaultTimezone="UTC"), "the zone has no effect"),
        (field(defaultTimezone="Europe/Berlin"), "the zone has no effect"),
        (field(format="epoch_ms", timezone=True), "timezone is true, but the format is epoch_ms"),
        (field(timezone=False), "timezone is false, but the format is yyyy-MM-dd'T'HH:mm:ssXXX"),
        (field(format="epoch_ms") | {"enum": [{"value": 1}]}, "enum is not supported for a timestamp with a format"),
        ({"name": "t", "logicalType": "date", "logicalTypeOptions": {"format": "yyyy"}}, "'format' is not a supported"),
        ({"name": "t", "logicalType": "integer", "logicalTypeOptions": {"format": "epoch_ms"}}, "'format' is not a"),
    ],
)
def test_what_is_rejected(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(given)
    assert message in str(caught.value)
    assert caught.value.hint


def test_tables_follow_a_change_of_the_form() -> None:
    old, new = parse(field()), parse(field(format="epoch_ms"))
    (change,) = changes(old, new)
    assert (change.what, change.obstacle) == ("format yyyy-MM-dd'T'HH:mm:ssXXX → epoch_ms", "")
