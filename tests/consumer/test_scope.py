"""Valid values of --from and --to, and the errors for all others."""

from datetime import UTC, datetime

import pytest

from consumer.scope import DataSource, Period, last_layer, period_of, with_landing, with_source
from lakeproof.errors import UsageError
from lakeproof.settings import Settings

MORNING, NOON = "2026-01-01T06:00:00Z", "2026-01-01T13:00:00+01:00"


def test_a_period_has_two_times_of_any_zone() -> None:
    found = period_of(MORNING, NOON, ["events"], DataSource.KAFKA)
    assert found == Period(datetime(2026, 1, 1, 6, tzinfo=UTC), datetime(2026, 1, 1, 12, tzinfo=UTC))


@pytest.mark.parametrize(
    ("since", "to", "streams", "source", "said"),
    [
        (MORNING, NOON, ["events"], None, "--from is only for Kafka"),
        (MORNING, NOON, ["events"], DataSource.LOCAL, "--from is only for Kafka"),
        (MORNING, NOON, ["events", "sensors"], DataSource.KAFKA, "one stream at a time"),
        (MORNING, None, ["events"], DataSource.KAFKA, "--from requires --to"),
        (MORNING, "gold", ["events"], DataSource.KAFKA, "--to: expected a time with its zone, got 'gold'"),
        ("yesterday", NOON, ["events"], DataSource.KAFKA, "--from: expected a time with its zone, got 'yesterday'"),
        ("2026-01-01T06:00:00", NOON, ["events"], DataSource.KAFKA, "--from: expected a time with its zone"),
        (NOON, MORNING, ["events"], DataSource.KAFKA, "--to is not after --from"),
        (MORNING, MORNING, ["events"], DataSource.KAFKA, "--to is not after --from"),
        (MORNING, "9999-01-01T00:00:00Z", ["events"], DataSource.KAFKA, "is in the future"),
    ],
)
def test_what_is_no_period(
    since: str, to: str | None, streams: list[str], source: DataSource | None, said: str
) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        period_of(since, to, streams, source)
    assert caught.value.hint


def test_without_from_the_end_is_a_layer() -> None:
    assert last_layer(None) is None
    assert last_layer("silver") == "silver"
    with pytest.raises(UsageError, match="expected one of bronze, silver, gold, got '2026-01-01'") as caught:
        last_layer("2026-01-01")
    assert "--from" in caught.value.hint


@pytest.mark.parametrize(
    ("kind", "source", "start", "streams", "said"),
    [
        (DataSource.KAFKA, "s3://a", None, ["events"], "--source cannot be used with --data-source kafka"),
        (DataSource.KAFKA, None, "latest", ["events"], "--starting-files cannot be used with --data-source kafka"),
        (None, "s3://a", None, ["events", "sensors"], "--source is the address of one stream"),
        (None, "s3:/a", None, ["events"], "--source: .* looks like an address, but has no ://"),
        (None, "gs://a/b", None, ["events"], "--source: gs://a/b is not a file:// or s3:// address"),
        (None, None, "yesterday", ["events"], "--starting-files: expected earliest, latest or a time, got 'yesterday'"),
        (None, None, "2026-01-01T00:00:00", ["events"], "--starting-files: expected earliest, latest or a time"),
        (
            DataSource.LOCAL,
            "s3://a/b",
            None,
            ["events"],
            "--data-source local does not match the landing zone s3://a/b",
        ),
    ],
)
def test_what_is_no_address_of_files(
    lake_settings: Settings,
    kind: DataSource | None,
    source: str | None,
    start: str | None,
    streams: list[str],
    said: str,
) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        with_source(with_landing(lake_settings, kind, source, start, streams), kind, None, streams)
    assert caught.value.hint


def test_an_address_of_files_is_that_of_this_run_alone(lake_settings: Settings) -> None:
    found = with_landing(lake_settings, DataSource.S3, "s3://a/b/", "latest", ["events"]).landing
    assert (found.source, found.starting_files) == ("s3://a/b", "latest")
    assert (
        with_source(lake_settings.model_copy(update={"landing": found}), DataSource.S3, None, ["events"]).landing
        == found
    )
    assert with_landing(lake_settings, None, None, None, ["events", "sensors"]) == lake_settings
