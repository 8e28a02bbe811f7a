"""Compare rows of a gold table with the recomputed rows, slice by slice."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from lakeproof.catalog import quoted
from lakeproof.contracts import Contract, PrimitiveType
from lakeproof.contracts.model import Type
from lakeproof.gold.model import WINDOW_END, WINDOW_START, Product
from reader.connect import Session
from reader.verify.findings import SHOWN_EXAMPLES, Findings
from reader.verify.gold.sessions import Sessions
from reader.verify.gold.windows import END, EXPECTED, START, Taken, Windows, key_columns, measure_columns
from reader.verify.silver.content import microseconds
from reader.verify.spans import Span
from reader.views import MEMORY, identifier

FOUND = f"{MEMORY}.main.verify_found_windows"
"""Rows of the table in a slice, with the columns of keys and values."""
MISSING = "missing"
SURPLUS = "not expected"
REPEATED = "several rows of one window"

_WRONG = f"{MEMORY}.main.verify_wrong_windows"
_SHOWN_TEXT = 60


def wrong(column: str) -> str:
    """Return the kind of finding for rows whose value in a column differs from the recomputed one."""
    return f"wrong {column}"


@dataclass(frozen=True)
class Key:
    """A key column, its display name, and SQL of its value as text."""

    column: str
    name: str
    text: str


@dataclass(frozen=True)
class Value:
    """A column to compare: its name, SQL of both values, and a function to SQL of a value as text."""

    name: str
    found: str
    expected: str
    text: Callable[[str], str]
    is_signed: bool = False

    @property
    def differs(self) -> str:
        """SQL that is true if the values differ. With `is_signed`, a negative zero in the table differs, too."""
        differs = f"{self.found} IS DISTINCT FROM {self.expected}"
        return f"({differs} OR ({self.found} = 0 AND signbit({self.found})) IS TRUE)" if self.is_signed else differs


def compare_rows(session: Session, table: str, keys: Sequence[Key], values: Sequence[Value], found: Findings) -> None:
    """Compare :data:`FOUND` with :data:`EXPECTED`, aliases ``_f`` and ``_e``; the first key is a time, never null."""
    time, *others = keys
    columns = ", ".join(key.column for key in keys)
    place = f"coalesce(make_timestamptz({time.column})::VARCHAR, {quoted(f'no {time.name}')})"
    place += "".join(f" || {quoted(f', {key.name} ')} || {key.text}" for key in others)

    def report(condition: str, what: str, text: str) -> None:
        rows, first = session.fetch_first(
            f"SELECT {text}, {columns} FROM {_WRONG} WHERE {condition}",
            columns,
            SHOWN_EXAMPLES,
        )
        if rows:
            found.add(table, what, rows, [example for example, *_ in first])

    session.fetch(
        f"CREATE OR REPLACE TABLE {_WRONG} AS SELECT {columns}, count(*) AS rows FROM {FOUND} GROUP BY {columns} "
        "HAVING count(*) > 1"
    )
    report("true", REPEATED, f"{place} || ': ' || rows || ' rows'")
    selected = [f"coalesce(_f.{key.column}, _e.{key.column}) AS {key.column}" for key in keys]
    selected += ["_f.here IS NOT NULL AS _found", "_e.here IS NOT NULL AS _expected"]
    for number, value in enumerate(values):
        differs = f"CASE WHEN _f.here AND _e.here AND {value.differs}"
        selected.append(f"{differs} THEN {value.text(value.found)} END AS _has_{number}")
        selected.append(f"{differs} THEN {value.text(value.expected)} END AS _expected_{number}")
    same = [f"_f.{time.column} = _e.{time.column}"]
    same += [f"_f.{key.column} IS NOT DISTINCT FROM _e.{key.column}" for key in others]
    session.fetch(
        f"CREATE OR REPLACE TABLE {_WRONG} AS SELECT {', '.join(selected)} "
        f"FROM (SELECT true AS here, * FROM {FOUND}) AS _f FULL JOIN (SELECT true AS here, * FROM {EXPECTED}) AS _e "
        f"ON {' AND '.join(same)} "
        f"WHERE _f.here IS NULL OR _e.here IS NULL OR {' OR '.join(value.differs for value in values)}"
    )
    report("NOT _found", MISSING, place)
    report("NOT _expected", SURPLUS, place)
    for number, value in enumerate(values):
        text = f"{place} || ': has ' || _has_{number} || ', expected ' || _expected_{number}"
        report(f"_has_{number} IS NOT NULL", wrong(value.name), text)


def drop_compared(session: Session) -> None:
    """Drop the tables of a comparison to free memory."""
    for table in (FOUND, EXPECTED, _WRONG):
        session.fetch(f"DROP TABLE IF EXISTS {table}")


def compare_gold(
    session: Session,
    product: Product,
    contract: Contract,
    gold: str,
    taken: Taken,
    name: str,
    found: Findings,
    within: Sequence[Span] | None = None,
) -> int:
    """Recompute the windows of a product from the rows of silver in its table; return the number of windows.

    If `within` is given, only windows that start in these spans are compared; of sessions, all or none.

    Faults in the rows of the table (`gold` is its SQL, `name` its display name) are added to `found`.
    """
    keys = list(zip(key_columns(product), product.keys, strict=True))
    measures = list(zip(measure_columns(product), product.measures, strict=True))
    columns = {START: microseconds(WINDOW_START), END: WINDOW_END}
    columns |= {column: identifier(key.name) for column, key in keys}
    columns |= {column: identifier(measure.name) for column, measure in measures}
    selected = ", ".join(f"{sql} AS {column}" for column, sql in columns.items())
    key_texts = [Key(START, WINDOW_START, ""), *(Key(name, key.name, text_of(key.type, name)) for name, key in keys)]
    values = [Value(WINDOW_END, f"_f.{END}", f"make_timestamptz(_e.{END})", partial(text_of, PrimitiveType.TIMESTAMP))]
    values += [
        Value(
            measure.name,
            f"_f.{column}",
            f"_e.{column}",
            partial(text_of, measure.type),
            is_signed=measure.type is PrimitiveType.DOUBLE,
        )
        for column, measure in measures
    ]
    windows = 0
    try:
        for part, count in _recomputed(session, product, contract, taken, within):
            session.fetch(f"CREATE OR REPLACE TABLE {FOUND} AS SELECT {selected} FROM {gold} WHERE {part}")
            compare_rows(session, name, key_texts, values, found)
            windows += count
    finally:
        drop_compared(session)
    return windows


def _recomputed(
    session: Session, product: Product, contract: Contract, taken: Taken, within: Sequence[Span] | None
) -> Iterator[tuple[str, int]]:
    """Recompute slice by slice; yield SQL that is true for table rows in the slice, and its number of windows."""
    wanted = [Span()] if within is None else within
    if not wanted:
        return
    if product.window.session:
        sessions = Sessions(session, product, contract, taken)
        for some in sessions.slices():
            count = sessions.expect(some)
            yield some.holds([identifier(key.name) for key in product.keys]), count
    else:
        windows = Windows(session, product, contract, taken)
        for span in (each for part in wanted for each in windows.slices(part)):
            count = windows.expect(span)
            yield span.holds_time(WINDOW_START), count


def text_of(kind: Type, value: str) -> str:
    """Return SQL of a value for display: text is quoted and escaped, and cut if it is long."""
    if kind in (PrimitiveType.STRING, PrimitiveType.SCALAR):
        cut = (
            f"CASE WHEN length({value}) > {_SHOWN_TEXT} THEN {value}[:{_SHOWN_TEXT}] || {quoted('…')} ELSE {value} END"
        )
        return f"coalesce(to_json({cut})::VARCHAR, 'null')"
    return f"coalesce({value}::VARCHAR, 'null')"
