"""The landing zone as landed, and dead letters as text."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reader.lake import rows
from tests.reader.verify.lake import Lake
from tests.reader.verify.replays import TABLES, Replayer

from lakeproof.landing.zone import landing_zone
from lakeproof.settings import Settings, settings_of
from lakeproof.storage import open_storage
from reader.connect import connect
from reader.views import streams, view_statements


def test_the_landing_view_has_every_file_under_the_name_that_the_tables_have(
    lake: Settings, landed: dict[str, bytes]
) -> None:
    files = dict(landing_zone(lake, "events").list())
    assert len(files) == len(landed)
    with connect(lake) as session:
        found = rows(session, "SELECT _source, size, content, epoch(last_modified) FROM landing.events")
    assert {source: size for source, size, _, _ in found} == {uri: file.size for uri, file in files.items()}
    assert sorted(content for _, _, content, _ in found) == sorted(landed.values())
    for source, _, _, seconds in found:
        assert abs(seconds - files[source].modified_at.timestamp()) < 1


def test_text_is_there_where_the_content_is_utf8(lake: Settings, landed: dict[str, bytes]) -> None:
    with connect(lake) as session:
        found = dict(rows(session, "SELECT content, text FROM landing.events"))
    for content in landed.values():
        try:
            assert found[content] == content.decode()
        except UnicodeDecodeError:
            assert found[content] is None
    assert sum(text is None for text in found.values()) == 2


def test_an_open_session_sees_a_file_that_lands(lake_settings: Settings) -> None:
    storage = open_storage(lake_settings.landing.uri, lake_settings.s3)
    with connect(lake_settings) as session:
        assert rows(session, "FROM landing.events") == []
        storage.write_new(f"{lake_settings.landing.uri}/events/later.json", b"[]")
        assert rows(session, "SELECT size, text FROM landing.events") == [(2, "[]")]


def test_streams_have_a_contract_or_a_folder(lake_settings: Settings) -> None:
    assert streams(lake_settings) == ["clickstream", "events", "sensors"]
    storage = open_storage(lake_settings.landing.uri, lake_settings.s3)
    storage.write_new(f"{lake_settings.landing.uri}/orders/a.json", b"{}")
    storage.write_new(f"{lake_settings.landing.uri}/not%20a%20stream/a.json", b"{}")
    assert streams(lake_settings) == ["clickstream", "events", "orders", "sensors"]
    with connect(lake_settings) as session:
        assert rows(session, "SELECT text FROM landing.orders") == [("{}",)]


def test_streams_differ_by_more_than_case(lake_settings: Settings) -> None:
    """DuckDB has one view for such names; a folder may be a typo of a producer."""
    storage = open_storage(lake_settings.landing.uri, lake_settings.s3)
    for folder in ("Events", "Orders", "events", "orders"):
        storage.write_new(f"{lake_settings.landing.uri}/{folder}/a.json", b"{}")
    assert streams(lake_settings) == ["Orders", "clickstream", "events", "sensors"]
    with connect(lake_settings) as session:
        assert rows(session, "SELECT text FROM landing.events") == [("{}",)]


def test_dead_letters_read_as_text(lake: Settings) -> None:
    with connect(lake) as session:
        found = rows(session, "SELECT raw, reasons[1].code FROM dead_letters_text.events ORDER BY _position")
        columns = rows(session, "SELECT column_name FROM (DESCRIBE dead_letters_text.events)")
        same = rows(session, "SELECT column_name FROM (DESCRIBE dead_letters.events)")
    assert found == [
        (r'{"user_id": "\xFF", "x": 1}', "unknown_field"),
        ('{"user_id": "é"}', "missing_field"),
        (r'{"user_id": "a\b"}', "missing_field"),
    ]
    assert columns == [*same, *((name,) for name in ("codes", "state", "attempts", "last_attempt"))]


def test_dead_letters_have_a_state_before_and_after_a_replay(lake_settings: Settings, tmp_path: Path) -> None:
    """Also in a session that is older than the table of attempts, which the first replay creates."""
    landed = Lake(lake_settings)
    bad = b'{"user_id": "u", "event_id": "%d", "event_type": "refund", "event_timestamp": "2026-11-21T12:30:00Z"}'
    landed.land({"a.json": b"[" + b",".join(bad % number for number in range(3)) + b', {"event_type": 1}]'})
    landed.consume()
    replayer = Replayer(lake_settings, tmp_path / "today")
    states = "SELECT _position, state, attempts FROM dead_letters_text.events ORDER BY _position"
    with connect(lake_settings) as session:
        assert rows(session, states) == [(position, "open", 0) for position in range(4)]
        replayer.replay(lambda letter: letter["_position"] in (0, 3))
        replayer.replay(lambda letter: letter["_position"] == 3, most=2)
        assert rows(session, states) == [(0, "closed", 1), (1, "open", 0), (2, "open", 0), (3, "parked", 2)]
        ((last,),) = rows(session, "SELECT max(last_attempt) FROM dead_letters_text.events")
        assert last == max(row["_ingested_at"] for row in replayer.rows(TABLES.attempts))
        names = rows(session, "SELECT name FROM tables WHERE schema = 'dead_letters'")
        assert names == [("events",), ("events_attempts",)]
        assert rows(session, "SELECT name FROM tables WHERE schema = 'root'") == []


@pytest.fixture(scope="module")
def macro() -> Any:
    import duckdb

    connection = duckdb.connect()
    settings = settings_of({"LAKE_CONTRACTS": "none", "LAKE_HOME": "none"})
    connection.execute(next(view_statements(settings)))
    return connection


@given(data=st.binary())
def test_any_bytes_have_a_text_and_utf8_keeps_its_own(macro: Any, data: bytes) -> None:
    ((text,),) = macro.execute("SELECT as_text(?::BLOB)", [data]).fetchall()
    try:
        assert text == data.decode()
    except UnicodeDecodeError:
        assert text.isascii()


def test_no_bytes_have_no_text(macro: Any) -> None:
    assert macro.execute("SELECT as_text(NULL)").fetchall() == [(None,)]
