"""Equality of content and keys, for values of every type."""

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reader.verify.silver.tables import BRONZE, CONFLICTS, KEPT, Tables, event, in_memory
from tests.selection import only_with_all

from lakeproof.contracts import (
    Contract,
    DecimalType,
    DriftPolicy,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
    Silver,
    SilverStrategy,
    Type,
    load_contract,
)
from lakeproof.tables.names import silver_tables
from lakeproof.tables.schemas import bronze_schema
from reader.connect import Session
from reader.verify.check import Result
from reader.verify.checks.silver import compare_silver
from reader.verify.findings import Findings
from reader.verify.silver.content import content, event_time, key
from reader.verify.silver.verdicts import RecomputedVerdicts

EVENTS = load_contract(Path(__file__).parents[4] / "contracts", "events")
NUMBERS = MapType(PrimitiveType.DOUBLE)
TYPES: dict[str, Type] = {
    "string": PrimitiveType.STRING,
    "boolean": PrimitiveType.BOOLEAN,
    "int": PrimitiveType.INT,
    "long": PrimitiveType.LONG,
    "float": PrimitiveType.FLOAT,
    "double": PrimitiveType.DOUBLE,
    "timestamp": PrimitiveType.TIMESTAMP,
    "date": PrimitiveType.DATE,
    "scalar": PrimitiveType.SCALAR,
    "decimal": DecimalType(38, 10),
    "map": NUMBERS,
    "list": ListType(PrimitiveType.DOUBLE),
    "object": ObjectType((Field("it's", PrimitiveType.FLOAT), Field('"of" entry_0', NUMBERS))),
    "list of objects": ListType(ObjectType((Field("numbers", NUMBERS), Field("flag", PrimitiveType.BOOLEAN)))),
    "map of maps": MapType(NUMBERS),
    "map of lists": MapType(ListType(ObjectType((Field("n", PrimitiveType.INT),)))),
    "map of objects": MapType(ObjectType((Field("n", PrimitiveType.INT),))),
}
SCALARS: dict[Type, st.SearchStrategy[Any]] = {
    PrimitiveType.STRING: st.sampled_from(("", "null", "a", "A", "ä", "a\0", '{"a":1}', "😀")),
    PrimitiveType.SCALAR: st.sampled_from(("1", "1.0", "true", "")),
    PrimitiveType.BOOLEAN: st.booleans(),
    PrimitiveType.INT: st.sampled_from((0, 1, -(2**31))),
    PrimitiveType.LONG: st.sampled_from((0, 2**63 - 1, 2**63 - 2, 2**53 + 1)),
    PrimitiveType.FLOAT: st.sampled_from((0.0, -0.0, 0.5, 1e-45, 3.4028234663852886e38)),
    PrimitiveType.DOUBLE: st.sampled_from((0.0, -0.0, 0.1, math.nextafter(0.1, 1), 5e-324, 1e308, 1e22)),
    PrimitiveType.TIMESTAMP: st.sampled_from(
        (datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC))
    ),
    PrimitiveType.DATE: st.sampled_from((date(1, 1, 1), date(2026, 1, 1))),
    TYPES["decimal"]: st.sampled_from((Decimal(0), Decimal("0.0000000001"), Decimal(10**27 + 1), Decimal(10**27))),
}


def values(kind: Type) -> st.SearchStrategy[Any]:
    match kind:
        case MapType():
            found: st.SearchStrategy[Any] = st.dictionaries(st.sampled_from("abc"), values(kind.value), max_size=3)
        case ListType():
            found = st.lists(values(kind.item), max_size=2)
        case ObjectType():
            found = st.fixed_dictionaries({field.name: values(field.type) for field in kind.fields})
        case _:
            found = SCALARS[kind]
    return st.none() | found


def written(kind: Type, value: Any, draw: st.DrawFn) -> Any:
    """As Arrow takes it: the entries of maps in any order."""
    if value is None:
        return None
    match kind:
        case MapType():
            return draw(st.permutations([(name, written(kind.value, item, draw)) for name, item in value.items()]))
        case ListType():
            return [written(kind.item, item, draw) for item in value]
        case ObjectType():
            return {field.name: written(field.type, value[field.name], draw) for field in kind.fields}
        case _:
            return value


def filled(kind: Type, value: Any) -> Any:
    """Replace null lists and maps of objects by empty ones, whose content is the same."""
    match kind:
        case MapType():
            if value is None:
                return {} if isinstance(kind.value, ObjectType) else None
            return {name: filled(kind.value, item) for name, item in value.items()}
        case ListType():
            if value is None:
                return [] if isinstance(kind.item, ObjectType) else None
            return [filled(kind.item, item) for item in value]
        case ObjectType():
            return value and {field.name: filled(field.type, value[field.name]) for field in kind.fields}
        case _:
            return value


def of_type(kind: Type) -> Contract:
    fields = (*EVENTS.fields, Field("value", kind))
    return replace(EVENTS, fields=fields, primary_key=("event_id", "value"), event_time="event_timestamp")


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as opened:
        yield opened


# Those of other containers and numbers with ALL=1.
BY_DEFAULT = ("string", "long", "double", "decimal", "timestamp", "object", "list", "map of objects")


@pytest.mark.parametrize("name", [name if name in BY_DEFAULT else only_with_all(name) for name in TYPES])
@given(data=st.data())
def test_content_is_the_same_for_equal_values_and_for_no_others(
    connection: duckdb.DuckDBPyConnection, name: str, data: st.DataObject
) -> None:
    kind = TYPES[name]
    contract = of_type(kind)
    one, other = data.draw(values(kind)), data.draw(values(kind))
    rows = [{"value": written(kind, value, data.draw)} for value in (one, other)]
    connection.register("written", pa.Table.from_pylist(rows, schema=bronze_schema(contract).as_arrow()))
    connection.execute("CREATE OR REPLACE TABLE written_rows AS FROM written")
    found = connection.execute(
        f"SELECT count(DISTINCT {content(contract, '_rows')}), "
        f"count(DISTINCT to_json([{key(contract, '_rows')[1]}])::VARCHAR) FROM written_rows AS _rows"
    ).fetchall()
    contents = 1 if filled(kind, one) == filled(kind, other) else 2
    assert found == [(contents, 1 if one == other else 2)]


def test_the_event_time_may_be_within_an_object_and_before_our_era(connection: duckdb.DuckDBPyConnection) -> None:
    contract = replace(EVENTS, event_time="it's.at")
    connection.execute(
        """CREATE OR REPLACE TABLE t AS SELECT {'at': '0000-01-01 00:00:00+00'::TIMESTAMPTZ} AS "it's" """
    )
    found = connection.execute(f"SELECT {event_time(contract, '_t')} FROM t AS _t").fetchall()
    assert found == [(-62167219200 * 10**6,)]


WEEK = timedelta(days=7)
NOON = datetime(2026, 1, 20, 12, tzinfo=UTC)
SILVER = Silver(WEEK, SilverStrategy.MERGE)
PROVENANCE = {"_source": "a", "_micro_batch_id": 0, "_landed_at": NOON, "_ingested_at": NOON + WEEK * 9}
NAMES = (
    "verdict",
    "horizon",
    "found",
    "source",
    "position",
    "key",
    "number",
    "content",
    "rows",
    "micro_batch",
    "bronze",
)


def test_fields_may_have_any_name(connection: duckdb.DuckDBPyConnection) -> None:
    """Also those of our own columns."""
    fields = tuple(Field(name, PrimitiveType.STRING, required=True) for name in NAMES)
    fields += (Field("event_time", PrimitiveType.TIMESTAMP), Field("silver", ObjectType(fields)))
    contract = Contract("select", "1", "", fields, ("key", "number"), "event_time", silver=SILVER)
    values = dict.fromkeys(NAMES, "a") | {"silver": dict.fromkeys(NAMES, "b"), "event_time": NOON} | PROVENANCE
    first = values | {"_position": 0}
    second = values | {"_position": 1, "source": "b", "_winner_source": "a", "_winner_position": 0}
    found = verify(
        connection,
        contract,
        {"bronze.select": [first, second], "silver.select": [first], "silver.select_conflicts": [second]},
    )
    assert (found.findings, list(found.facts["verdicts"].values())) == ((), [1, 0, 1, 0])


def test_a_row_without_event_time_is_never_late_nor_behind_the_horizon(connection: duckdb.DuckDBPyConnection) -> None:
    times = [("x", None), ("y", NOON), ("x", None), ("x", NOON), ("z", None), ("x", NOON - WEEK * 2)]
    rows = [event((number, "a", number), key, event_timestamp=at) for number, (key, at) in enumerate(times)]
    lost = [rows[number] | {"_winner_source": "a", "_winner_position": 0} for number in (3, 5)]
    found = verify(
        connection,
        replace(EVENTS, silver=SILVER),
        {BRONZE: rows, KEPT: [rows[0], rows[1], rows[4]], CONFLICTS: lost},
    )
    assert (found.findings, list(found.facts["verdicts"].values())) == ((), [3, 1, 2, 0])


def test_what_was_rescued_is_compared_where_all_tables_have_it(connection: duckdb.DuckDBPyConnection) -> None:
    contract = replace(EVENTS, silver=SILVER, drift=DriftPolicy.RESCUE)
    row = event((0, "a", 0), "x", _rescued=[("$.a", "1"), ("$.b", "2")])
    kept = row | {"_rescued": row["_rescued"][::-1]}
    assert verify(connection, contract, {BRONZE: [row], KEPT: [kept]}).findings == ()
    [finding] = verify(connection, contract, {BRONZE: [row], KEPT: [row | {"_rescued": None}]}).findings
    assert finding.details == ("a, position 0: _rescued",)
    connection.execute(f"ALTER TABLE {KEPT} DROP COLUMN _rescued")
    session = Session(connection, [])
    found = compare_silver(session, contract, RecomputedVerdicts(session, contract, 10), Findings()).findings
    assert [each.place for each in found] == ["ledger.events_silver"]


def verify(connection: duckdb.DuckDBPyConnection, contract: Contract, tables: Tables) -> Result:
    """Verify all tables except for the ledger."""
    session = in_memory(connection, contract, tables)
    found = compare_silver(session, contract, RecomputedVerdicts(session, contract, 10), Findings())
    ledger = silver_tables(contract.stream).ledger
    return replace(found, findings=tuple(each for each in found.findings if each.place != ledger))
