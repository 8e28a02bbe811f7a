"""Values of every type print in each format."""

import csv
import io
import json
from typing import Any

import duckdb
import pytest
from rich.console import Console
from rich.table import Table

from reader.output import Format, print_counts, write_result

EVERYTHING = r"""
SELECT 1 AS a, 2 AS a, 'x"y, z
w' AS text, '' AS empty, NULL AS nothing, 'é😀' AS emoji, true AS flag,
  timestamptz '2026-01-01 00:00:00.123+02' AS at, date '0001-01-01' AS day, time '12:30:00' AS hour,
  timestamptz '0001-01-01 00:30:00+01' AS before_christ,
  12345678901234567890123456.1200::decimal(38,4) AS price, 170141183460469231731687303715884105727::hugeint AS huge,
  map {'k': 1.50::decimal(10,2)} AS pairs, {'p': 'q', 'n': NULL} AS fields, [1, NULL] AS items,
  '\xFF"a'::blob AS bytes, 'nan'::double AS not_a_number, 'inf'::double AS infinite,
  interval '1 month 2 hours' AS gap, '2026-01-01 00:00:00.123456789'::timestamp_ns AS nanos,
  '5f2b2f6e-3b5a-4c1e-9d0e-000000000001'::uuid AS id
"""


@pytest.fixture
def connection() -> Any:
    with duckdb.connect() as opened:
        opened.execute("SET TimeZone = 'UTC'")
        yield opened


def written(connection: Any, statement: str, output_format: Format) -> str:
    out = io.StringIO()
    write_result(connection.sql(statement), output_format, out)
    return out.getvalue()


def test_json_keeps_every_value(connection: Any) -> None:
    (row,) = json.loads(written(connection, EVERYTHING, Format.JSON), parse_constant=pytest.fail)
    assert row == {
        "a": 1,
        "a_1": 2,
        "text": 'x"y, z\nw',
        "empty": "",
        "nothing": None,
        "emoji": "é😀",
        "flag": True,
        "at": "2025-12-31T22:00:00.123000+00:00",
        "day": "0001-01-01",
        "hour": "12:30:00",
        "before_christ": "0001-12-31 (BC) 23:30:00+00",
        "price": "12345678901234567890123456.1200",
        "huge": 170141183460469231731687303715884105727,
        "pairs": {"k": "1.50"},
        "fields": {"p": "q", "n": None},
        "items": [1, None],
        "bytes": "/yJh",
        "not_a_number": "nan",
        "infinite": "inf",
        "gap": "1 month 02:00:00",
        "nanos": "2026-01-01 00:00:00.123456789",
        "id": "5f2b2f6e-3b5a-4c1e-9d0e-000000000001",
    }


def test_csv_is_rfc_4180_with_line_feeds(connection: Any) -> None:
    text = written(
        connection, "SELECT 1 AS a, 'x\"y, z\nw' AS \"b,c\", NULL AS d UNION ALL SELECT 2, '', 'e'", Format.CSV
    )
    assert text == 'a,"b,c",d\n1,"x""y, z\nw",\n2,,e\n'


def test_csv_quotes_every_kind_of_line_end(connection: Any) -> None:
    text = written(connection, "SELECT 'x' || chr(13) || 'y' AS a, chr(13) || chr(10) AS b", Format.CSV)
    assert text == 'a,b\n"x\ry","\r\n"\n'


def test_csv_keeps_every_value(connection: Any) -> None:
    header, row = csv.reader(io.StringIO(written(connection, EVERYTHING, Format.CSV), newline=""))
    found = dict(zip(header, row, strict=False))
    assert found["at"] == "2025-12-31T22:00:00.123000+00:00"
    assert found["before_christ"] == "0001-12-31 (BC) 23:30:00+00"
    assert found["price"] == "12345678901234567890123456.1200"
    assert found["flag"] == "true"
    assert json.loads(found["pairs"]) == {"k": "1.50"}
    assert json.loads(found["items"]) == [1, None]
    assert found["bytes"] == "/yJh"
    assert found["text"] == 'x"y, z\nw'


def test_a_table_prints_every_value(connection: Any) -> None:
    assert "é😀" in written(connection, EVERYTHING, Format.TABLE)


def test_a_table_shows_what_a_terminal_would_obey(connection: Any) -> None:
    """Also what DuckDB does not escape."""
    shown = written(connection, "SELECT 'a' || chr(8238) || chr(27) || '[31m' || chr(155) AS text", Format.TABLE)
    assert r"a\u202e\e[31m\x9b" in shown


def test_a_long_table_says_what_it_leaves_out(connection: Any) -> None:
    assert "1000 rows" in written(connection, "SELECT range AS number FROM range(1000)", Format.TABLE)


@pytest.mark.parametrize(("output_format", "empty"), [(Format.CSV, "a\n"), (Format.JSON, "[\n]\n")])
def test_no_rows(connection: Any, output_format: Format, empty: str) -> None:
    assert written(connection, "SELECT 1 AS a LIMIT 0", output_format) == empty


def test_more_rows_than_are_fetched_at_once(connection: Any) -> None:
    rows = json.loads(written(connection, "SELECT range AS n FROM range(25000)", Format.JSON))
    assert [row["n"] for row in rows] == list(range(25000))


@pytest.mark.parametrize("statement", ["DESCRIBE SELECT 1 AS a", "SHOW TABLES", "EXPLAIN SELECT 1", "VALUES (1)"])
def test_what_is_no_select_prints_too(connection: Any, statement: str) -> None:
    assert isinstance(json.loads(written(connection, statement, Format.JSON)), list)


@pytest.mark.parametrize("width", [80, 160])
def test_a_table_of_counts_is_whole_in_a_narrow_terminal(width: int) -> None:
    table = Table("stream", title="Recounted sources")
    for heading in ("lost", "doubled", "changed", "expired", "pending", "ok", "landed units", "in bronze"):
        table.add_column(heading, justify="right")
    table.add_column("dead letters", justify="right")
    table.add_row("events", *["0"] * 5, "1,000", "1,000,000", "949,123", "50,877")
    shown = io.StringIO()
    print_counts(Console(file=shown, width=width), table)
    assert "…" not in shown.getvalue()
    assert max(map(len, shown.getvalue().splitlines())) <= width
    words = set(shown.getvalue().replace("│", " ").replace("┃", " ").split())
    assert {"events", "doubled", "pending", "letters", "1,000,000"} <= words
    assert ("│ events │" in shown.getvalue()) == (width == 160)
