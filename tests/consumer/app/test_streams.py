"""Every shipped contract makes a stream: one good and one bad record, read by PyIceberg and DuckDB."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.consumer.lake import Drain, rows
from tests.lakes import changed

from lakeproof.contracts import load_contract
from lakeproof.settings import Settings
from reader.connect import connect
from reader.summary import print_summary
from reader.verify.driver import verify

pytestmark = pytest.mark.spark

GOOD: dict[str, dict[str, Any]] = {
    "events": {
        "user_id": "u",
        "event_id": "e",
        "event_timestamp": "2026-11-21T06:00:00Z",
        "event_type": "page_view",
    },
    "clickstream": {
        "id": 1,
        "type": "search",
        "event": {"timestamp": "2026-11-21T06:00:00.123456+01:00", "page": "/", "query": "shoes", "ip": "::1"},
    },
    "sensors": {"device_id": "d", "sensor_freq": -1.5, "event_time": "2026-11-21T06:00:00Z"},
}


@pytest.mark.parametrize("stream", list(GOOD))
def test_a_shipped_contract_makes_a_stream(
    lake_settings: Settings, drain: Drain, capsys: pytest.CaptureFixture[str], stream: str
) -> None:
    landing = lake_settings.home / "landing" / stream
    landing.mkdir(parents=True)
    (landing / "1.json").write_text(json.dumps([GOOD[stream], {"unknown": 1}]))
    drain(lake_settings, stream)
    [row] = rows(lake_settings, f"bronze.{stream}")
    [dead] = rows(lake_settings, f"dead_letters.{stream}")
    assert {"missing_field", "unknown_field"} == {reason["code"] for reason in dead["reasons"]}

    table = f"bronze.{stream}"
    day = load_contract(lake_settings.contracts, stream).event_time
    # The condition prunes partitions, so a wrong partition would lose the row.
    where = f"{day} >= TIMESTAMP '2026-11-21 00:00:00+00:00' AND {day} < TIMESTAMP '2026-11-22 00:00:00+00:00'"
    assert rows(lake_settings, table) == [row]
    with connect(lake_settings) as session:
        found = session.connection.execute(f"SELECT count(*), any_value(_position) FROM {table} WHERE {where}")
        assert found.fetchall() == [(1, 0)]
    print_summary(lake_settings, stream)
    assert "2026-11-21" in capsys.readouterr().out


THINGS = """
apiVersion: v3.1.0
kind: DataContract
id: things
name: things
version: 1.0.0
status: active
schema:
  - name: things
    logicalType: object
    properties:
      - {name: raw, logicalType: string, required: true, primaryKey: true, primaryKeyPosition: 1}
      - {name: reasons, logicalType: string, required: true}
      - {name: at, logicalType: timestamp, required: true}
customProperties:
  - {property: eventTime, value: at}
"""


def test_fields_may_be_called_as_columns_of_dead_letters_are(
    lake_settings: Settings, drain: Drain, tmp_path: Path
) -> None:
    (tmp_path / "contracts").mkdir()
    (tmp_path / "contracts" / "things.yaml").write_text(THINGS)
    settings = changed(lake_settings, LAKE_CONTRACTS=str(tmp_path / "contracts"))
    landing = settings.home / "landing" / "things"
    landing.mkdir(parents=True)
    good = {"raw": "its raw", "reasons": "its reasons", "at": "2026-11-21T06:00:00Z"}
    (landing / "1.json").write_text(json.dumps([good, {**good, "raw": 1}]))
    drain(settings, "things")
    [row] = rows(settings, "bronze.things")
    [dead] = rows(settings, "dead_letters.things")
    assert (row["raw"], row["reasons"]) == ("its raw", "its reasons")
    assert (json.loads(dead["raw"])["reasons"], dead["reasons"][0]["path"]) == ("its reasons", "$.raw")
    (found,) = verify(settings, "things", values=True)
    assert not found.off


def test_the_event_time_and_other_times_can_have_another_form(
    lake_settings: Settings, drain: Drain, tmp_path: Path
) -> None:
    forms = {
        "at": ("{format: epoch_ms, minimum: 2020-01-01T00:00:00Z}", 1795240800123),
        "seconds": ("{format: epoch_s}", 1795240800.123),
        "local": ("{format: yyyy-MM-dd HH:mm:ss, defaultTimezone: Europe/Berlin}", "2026-11-21 07:00:00.123"),
        "day": ("{format: yyyy-MM-dd, defaultTimezone: Asia/Tokyo}", "2026-11-21"),
    }
    fields = "".join(
        f"      - {{name: {name}, logicalType: timestamp, required: true, logicalTypeOptions: {options}}}\n"
        for name, (options, _) in forms.items()
    )
    (tmp_path / "things.yaml").write_text(
        THINGS.replace("      - {name: at, logicalType: timestamp, required: true}\n", fields)
    )
    settings = changed(lake_settings, LAKE_CONTRACTS=str(tmp_path))
    landing = settings.home / "landing" / "things"
    landing.mkdir(parents=True)
    good = {"raw": "r", "reasons": "r"} | {name: value for name, (_, value) in forms.items()}
    wrong = {"at": 1795240800, "local": "2026-03-29 02:30:00", "day": "2026-11-21T00:00:00Z", "seconds": "1795240800"}
    bad = [good | {name: value} for name, value in wrong.items()]
    (landing / "1.json").write_text(json.dumps([good, *bad]))
    drain(settings, "things")
    [row] = rows(settings, "bronze.things")
    at = datetime(2026, 11, 21, 6, 0, 0, 123_000, UTC)
    assert [row[name] for name in forms] == [at, at, at, datetime(2026, 11, 20, 15, tzinfo=UTC)]
    dead = [each["reasons"] for each in rows(settings, "dead_letters.things")]
    assert {(each[0]["path"], each[0]["code"]) for each in dead} == {
        ("$.at", "out_of_range"), ("$.local", "wrong_format"), ("$.day", "wrong_format"), ("$.seconds", "wrong_type"),
    }  # fmt: skip
    (found,) = verify(settings, "things", values=True)
    assert not found.off
