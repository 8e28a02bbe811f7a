"""Timestamps in the form of a contract: both judges and verify read the intended time."""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.judging import units_of
from tests.lakeproof.judge.test_native import ZONES, agrees

from lakeproof.contracts import Contract, DriftPolicy, Field, PrimitiveType, TimeForm, TimeFormat
from lakeproof.judge.batch import Judge
from reader.verify.landed.values import Sample

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
moments = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.just(UTC))
# Around clock changes.
moments |= st.builds(
    lambda day, minutes: datetime(*day, tzinfo=UTC) + timedelta(minutes=minutes),
    st.sampled_from(
        [(2026, 3, 29), (2026, 10, 25), (2026, 3, 8), (2026, 11, 1), (2026, 4, 24), (2026, 10, 29), (2011, 12, 30)]
    ),
    st.integers(-1500, 1500),
)


def contract_of(form: TimeForm, drift: DriftPolicy = DriftPolicy.FREEZE, required: bool = True) -> Contract:
    field = Field("at", PrimitiveType.TIMESTAMP, required, time=form)
    return Contract("s", "1", "", (field,), (), "at", drift=drift)


def judged(form: TimeForm, tokens: Sequence[str]) -> list[Any]:
    """Return the time of each token in microseconds, or its reason; check that both judges and verify agree."""
    contract = contract_of(form)
    units = [b'{"at":%b}' % token.encode() for token in tokens]
    batch = b"[" + b",".join(units) + b"]"
    agrees(contract, [batch, *units])
    found = list(Judge(contract).judge(batch))
    assert differences(contract, units, pa.Table.from_batches([each.good.values for each in found]), found) == []
    return [
        row["reasons"][0]["code"] if row["reasons"] else (row["at"] - EPOCH) // MICROSECOND for row in units_of(found)
    ]


def differences(contract: Contract, units: Sequence[bytes], rows: pa.Table, judged: Any) -> list[str]:
    positions = [position for each in judged for position in each.good.positions.to_pylist()]
    for name, column in {"_source": ["a"] * len(positions), "_position": positions}.items():
        rows = rows.append_column(name, pa.array(column))
    rows = rows.append_column("_contract_version", pa.array(["1"] * len(positions), pa.string()))
    found = Sample({"1": contract}, rows).compare("a", dict(enumerate(units)))
    return found.wrong + found.missing


def micros(at: datetime) -> int:
    return (at - EPOCH) // MICROSECOND


@settings(deadline=None)
@given(st.lists(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999), min_size=1, max_size=5), st.data())
def test_numbers_are_exact(times: list[int], data: st.DataObject) -> None:
    exact = [Decimal(time).scaleb(-6) for time in times]
    texts = [data.draw(st.sampled_from([f"{each:f}", f"{each:E}", f"{each:f}000"])) for each in exact]
    assert judged(TimeForm(TimeFormat.EPOCH_S), texts) == times
    assert judged(TimeForm(TimeFormat.EPOCH_US), [str(time) for time in times]) == times
    whole = [time // 1_000 for time in times[1:]]
    assert judged(TimeForm(TimeFormat.EPOCH_MS), ["0", *map(str, whole)]) == [0, *(each * 1_000 for each in whole)]


@settings(deadline=None)
@given(st.lists(moments, min_size=1, max_size=5), st.sampled_from(ZONES), st.sampled_from("T "), st.data())
def test_texts_are_the_time_that_was_meant(
    times: list[datetime], zone: str, separator: str, data: st.DataObject
) -> None:
    local = [time.astimezone(ZoneInfo(zone)) for time in times]
    plain = [json.dumps(each.replace(tzinfo=None).isoformat(separator)) for each in local]
    twice = [len(meant(each.replace(tzinfo=None), zone)) > 1 for each in local]
    expected = ["wrong_format" if two else micros(time) for time, two in zip(times, twice, strict=True)]
    pattern = f"yyyy-MM-dd{separator if separator == ' ' else repr('T')}HH:mm:ss"
    assert judged(TimeForm(TimeFormat(pattern), zone), plain) == expected
    offset = [json.dumps(time.isoformat(separator)) for time in times]
    assert judged(TimeForm(TimeFormat(f"{pattern}XXX")), offset) == [micros(time) for time in times]
    mixed = [data.draw(st.booleans()) for _ in times]
    texts = [one if is_plain else other for one, other, is_plain in zip(plain, offset, mixed, strict=True)]
    found = [one if is_plain else micros(time) for one, time, is_plain in zip(expected, times, mixed, strict=True)]
    assert judged(TimeForm(TimeFormat(f"{pattern}[XXX]"), zone), texts) == found


def meant(local: datetime, zone: str) -> list[datetime]:
    """Return the times at which clocks show a local time, by trying all offsets of two days around it."""
    start = local.replace(tzinfo=UTC) - timedelta(hours=26)
    offsets = {(start + timedelta(hours=hour)).astimezone(ZoneInfo(zone)).utcoffset() for hour in range(53)}
    times = {local.replace(tzinfo=UTC) - offset for offset in offsets if offset is not None}
    return sorted(time for time in times if time.astimezone(ZoneInfo(zone)).replace(tzinfo=None) == local)


@settings(deadline=None)
@given(st.datetimes(datetime(1970, 1, 1), datetime(2037, 12, 31)), st.sampled_from(ZONES))
def test_a_local_time_that_does_not_exist_or_exists_twice_is_refused(local: datetime, zone: str) -> None:
    times = meant(local, zone)
    expected = micros(times[0]) if len(times) == 1 else "wrong_format"
    assert judged(TimeForm(TimeFormat.T_LOCAL, zone), [json.dumps(local.isoformat())]) == [expected]


@settings(deadline=None)
@given(
    st.dates(date(1, 1, 3), date(9999, 12, 29)) | st.sampled_from([date(2026, 4, 24), date(2026, 10, 30)]),
    st.sampled_from(ZONES),
)
def test_a_date_is_its_midnight(day: date, zone: str) -> None:
    midnight = datetime(day.year, day.month, day.day)
    times = meant(midnight, zone)
    if not times:  # clocks skipped an hour in Cairo, a day in Apia
        times = meant(midnight + (timedelta(days=1) if zone == "Pacific/Apia" else timedelta(hours=1)), zone)
    assert judged(TimeForm(TimeFormat.DATE, zone), [f'"{day.isoformat()}"']) == [micros(times[0])]


@pytest.mark.parametrize(
    ("pattern", "zone", "token", "code", "detail"),
    [
        ("epoch_s", "UTC", '"1795264200"', "wrong_type", 'expected a number, got "1795264200"'),
        ("epoch_s", "UTC", "1795264200.0000001", "out_of_range", "6 after it"),
        ("epoch_s", "UTC", "1e99999999999999999999", "out_of_range", "digits before the decimal point"),
        ("epoch_s", "UTC", "1795264200000", "out_of_range", "between the years 0001 and 9999"),
        ("epoch_ms", "UTC", "1.5", "wrong_type", "expected an integer, milliseconds since 1970, got 1.5"),
        ("epoch_us", "UTC", "9" * 5000, "out_of_range", "between the years 0001 and 9999"),
        ("yyyy-MM-dd HH:mm:ss", "UTC", '"2026-11-21T12:30"', "wrong_format", "of the format yyyy-MM-dd HH:mm:ss, got"),
        ("yyyy-MM-dd HH:mm:ss", "UTC", "5", "wrong_type", "expected a string, got 5"),
        ("yyyy-MM-dd HH:mm:ss", "UTC", '"2026-02-30 12:30"', "wrong_format", "a valid date and time"),
        ("yyyy-MM-dd HH:mm:ss", "Europe/Berlin", '"2026-03-29 02:30"', "wrong_format", "that exists in Europe/Berlin"),
        (
            "yyyy-MM-dd HH:mm:ss",
            "Europe/Berlin",
            '"2026-10-25 02:30"',
            "wrong_format",
            "that is not ambiguous in Europe",
        ),
        ("yyyy-MM-dd", "UTC", '"2026-11-21T12:30:00Z"', "wrong_format", "expected a date (yyyy-MM-dd), got"),
        ("yyyy-MM-dd", "Europe/Berlin", '"0001-01-01"', "out_of_range", "between the years 0001 and 9999 in UTC"),
    ],
)
def test_why_a_value_does_not_fit(pattern: str, zone: str, token: str, code: str, detail: str) -> None:
    form = TimeForm(TimeFormat(pattern), zone)
    record = b'{"at":%b}' % token.encode()
    (row,) = units_of(Judge(contract_of(form)).judge(record))
    assert [reason["code"] for reason in row["reasons"]] == [code]
    assert detail in row["reasons"][0]["detail"]
    assert row["raw"] == record
    (row,) = units_of(Judge(contract_of(form, DriftPolicy.RESCUE, required=False)).judge(record))
    assert (row["at"], row["_rescued"], row["_drift"]) == (None, {"$.at": token}, [code])


@pytest.mark.parametrize(
    ("pattern", "zone", "token", "wrong"),
    [
        ("epoch_s", "UTC", "1795264200.000001", "1795264200.000002"),
        ("epoch_ms", "UTC", "1795264200123", "1795264200124"),
        ("epoch_us", "UTC", "1795264200123456", "1795264200123457"),
        ("yyyy-MM-dd HH:mm:ss", "Europe/Berlin", '"2026-11-21 12:30:00"', '"2026-11-21 11:30:00"'),
        ("yyyy-MM-dd'T'HH:mm:ss[XXX]", "Europe/Berlin", '"2026-07-01T12:30:00"', '"2026-07-01T12:30:00Z"'),
        ("yyyy-MM-dd", "Europe/Berlin", '"2026-11-21"', '"2026-11-22"'),
    ],
)
def test_verify_finds_another_time(pattern: str, zone: str, token: str, wrong: str) -> None:
    contract = contract_of(TimeForm(TimeFormat(pattern), zone))
    unit, other = (b'{"at":%b}' % text.encode() for text in (token, wrong))
    found = list(Judge(contract).judge(unit))
    (different,) = differences(contract, [other], pa.Table.from_batches([found[0].good.values]), found)
    assert "landed" in different
