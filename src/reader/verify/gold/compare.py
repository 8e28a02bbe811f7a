"""Compare a table of gold with the windows that were recomputed, slice by slice."""

from typing import Protocol, TypeVar

from lakeproof.contracts import Contract, PrimitiveType
from lakeproof.contracts.model import Type
from lakeproof.gold.model import WINDOW_END, WINDOW_START, Product
from reader.connect import Session
from reader.verify.gold import findings
from reader.verify.gold.sessions import Sessions
from reader.verify.gold.windows import END, EXPECTED, START, Taken, Windows, key_columns, measure_columns
from reader.verify.silver.content import microseconds
from reader.verify.tables import SHOWN_EXAMPLES, Findings
from reader.views import MEMORY, identifier, quoted

_FOUND = f"{MEMORY}.main.verify_found_windows"
_WRONG = f"{MEMORY}.main.verify_wrong_windows"
_SHOWN_TEXT = 60


class Part(Protocol):
    """A part of the windows of a product."""

    def of_table(self, product: Product) -> str:
        """SQL of whether a row of the product's table is in it."""


_PartT = TypeVar("_PartT", bound=Part)


class _Recomputed(Protocol[_PartT]):
    """The windows of a product, recomputed part by part."""

    def slices(self) -> list[_PartT]: ...

    def expect(self, part: _PartT) -> int: ...

    def close(self) -> None: ...


def compare_gold(
    session: Session, product: Product, contract: Contract, gold: str, taken: Taken, name: str, found: Findings
) -> int:
    """Recompute the windows of a product, and add what is wrong with the rows of its table to what was found.

    Parameters
    ----------
    session
        The open session.
    product
        The product.
    contract
        The contract of its stream.
    gold
        SQL of the rows of its table.
    taken
        The rows of silver that the table has.
    name
        Name of the table, for the findings.
    found
        Gets what is wrong.

    Returns
    -------
    int
        How many windows were recomputed.
    """
    comparison = _Comparison(session, product, gold, name, found)
    if product.window.session:
        return _compared(Sessions(session, product, contract, taken), comparison)
    return _compared(Windows(session, product, contract, taken), comparison)


def _compared(recomputed: _Recomputed[_PartT], comparison: "_Comparison") -> int:
    try:
        windows = 0
        for part in recomputed.slices():
            windows += recomputed.expect(part)
            comparison.compare(part)
        return windows
    finally:
        recomputed.close()
        comparison.close()


class _Comparison:
    def __init__(self, session: Session, product: Product, gold: str, name: str, found: Findings) -> None:
        self._session = session
        self._product = product
        self._gold = gold
        self._name = name
        self._found = found
        self._keys = dict(zip(key_columns(product), product.keys, strict=True))
        self._measures = dict(zip(measure_columns(product), product.measures, strict=True))

    def compare(self, part: Part) -> None:
        """Compare the rows of a slice with what is expected of it."""
        self._read(part)
        self._find_repeated()
        self._join()
        place = self._place()
        self._report("NOT _found", findings.MISSING, place)
        self._report("NOT _expected", findings.SURPLUS, place)
        for column, name in {
            END: WINDOW_END,
            **{each: measure.name for each, measure in self._measures.items()},
        }.items():
            has, expected = f"_has{column}", f"_expected{column}"
            text = f"{place} || ': has ' || {has} || ', expected ' || {expected}"
            self._report(f"{has} IS NOT NULL", findings.wrong(name), text)

    def close(self) -> None:
        """Give the memory back."""
        for table in (_FOUND, _WRONG):
            self._session.fetch(f"DROP TABLE IF EXISTS {table}")

    def _read(self, part: Part) -> None:
        """Put the rows of the table that are in a slice into memory."""
        columns = {START: microseconds(WINDOW_START), END: WINDOW_END}
        columns |= {column: identifier(key.name) for column, key in self._keys.items()}
        columns |= {column: identifier(measure.name) for column, measure in self._measures.items()}
        within = part.of_table(self._product)
        selected = ", ".join(f"{sql} AS {column}" for column, sql in columns.items())
        self._session.fetch(f"CREATE OR REPLACE TABLE {_FOUND} AS SELECT {selected} FROM {self._gold} WHERE {within}")  # noqa: S608

    def _find_repeated(self) -> None:
        window = ", ".join([START, *self._keys])
        self._session.fetch(
            f"CREATE OR REPLACE TABLE {_WRONG} AS SELECT {window}, count(*) AS rows FROM {_FOUND} GROUP BY {window} "  # noqa: S608
            "HAVING count(*) > 1"
        )
        self._report("true", findings.REPEATED, f"{self._place()} || ': ' || rows || ' rows'")

    def _join(self) -> None:
        """Put what differs into a table: windows, whether each side has them, and texts of the values that differ."""
        columns = [f"coalesce(_g.{START}, _e.{START}) AS {START}"]
        columns += [f"coalesce(_g.{column}, _e.{column}) AS {column}" for column in self._keys]
        columns += ["_g.here IS NOT NULL AS _found", "_e.here IS NOT NULL AS _expected"]
        differences = []
        values: dict[str, tuple[str, Type]] = {END: (f"make_timestamptz(_e.{END})", PrimitiveType.TIMESTAMP)}
        values |= {column: (f"_e.{column}", measure.type) for column, measure in self._measures.items()}
        for column, (expected, kind) in values.items():
            differs = _differs(f"_g.{column}", expected, kind)
            differences.append(differs)
            differs = f"CASE WHEN _g.here AND _e.here AND {differs}"
            columns.append(f"{differs} THEN {_text(f'_g.{column}', kind)} END AS _has{column}")
            columns.append(f"{differs} THEN {_text(expected, kind)} END AS _expected{column}")
        same = [f"_g.{START} = _e.{START}", *(f"_g.{column} IS NOT DISTINCT FROM _e.{column}" for column in self._keys)]
        self._session.fetch(
            f"CREATE OR REPLACE TABLE {_WRONG} AS SELECT {', '.join(columns)} "  # noqa: S608
            f"FROM (SELECT true AS here, * FROM {_FOUND}) AS _g "
            f"FULL JOIN (SELECT true AS here, * FROM {EXPECTED}) AS _e "
            f"ON {' AND '.join(same)} WHERE _g.here IS NULL OR _e.here IS NULL OR {' OR '.join(differences)}"
        )

    def _report(self, condition: str, what: str, text: str) -> None:
        order = ", ".join([START, *self._keys])
        rows = self._session.fetch(
            f"SELECT count(*) OVER (), {text} FROM {_WRONG} WHERE {condition} ORDER BY {order} LIMIT {SHOWN_EXAMPLES}"  # noqa: S608
        )
        if rows:
            self._found.add(self._name, what, rows[0][0], [example for _, example in rows])

    def _place(self) -> str:
        """SQL of a window and its keys, for people."""
        parts = [f"coalesce(make_timestamptz({START})::VARCHAR, 'no {WINDOW_START}')"]
        parts += [f"{quoted(f', {key.name} ')} || {_text(column, key.type)}" for column, key in self._keys.items()]
        return " || ".join(parts)


def _differs(found: str, expected: str, kind: Type) -> str:
    """SQL of whether a value is another one. A zero has no sign, so a negative one is another."""
    differs = f"{found} IS DISTINCT FROM {expected}"
    return f"({differs} OR ({found} = 0 AND signbit({found})) IS TRUE)" if kind is PrimitiveType.DOUBLE else differs


def _text(value: str, kind: Type) -> str:
    """SQL of a value for people: text with quotes and escapes, cut if it is long."""
    if kind in (PrimitiveType.STRING, PrimitiveType.SCALAR):
        cut = (
            f"CASE WHEN length({value}) > {_SHOWN_TEXT} THEN {value}[:{_SHOWN_TEXT}] || {quoted('…')} ELSE {value} END"
        )
        return f"coalesce(to_json({cut})::VARCHAR, 'null')"
    return f"coalesce({value}::VARCHAR, 'null')"
