"""SQL of the hashes in the ledger, as docs/guarantees.md defines them, independent of the consumer's code.

The text of a row contains each column that is not null, under its first name, in the order of these names; each part is
preceded by its length in bytes. The hash is the first 64 bits of the text's MD5.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lakeproof.catalog import quoted
from lakeproof.contracts import Field, ListType, MapType, ObjectType
from lakeproof.contracts.model import Type
from reader.views import identifier

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType

_BACK = 1 << 63  # converts unsigned to signed numbers
# Arrow writes decimals that are closer to 0 than this with an exponent.
_PLAIN, _PLAIN_SCALE = "0.000001", 6


def row_hash_sql(schema: "Schema", fields: Iterable[Field], alias: str) -> str:
    """Return SQL of the hash (UBIGINT) of a row of a table with this alias.

    The schema is of the table, or of one of its data files, under any of its names; `fields`, of the newest applied
    contract, have the first names of renamed fields.
    """
    known = _by_name(fields)
    parts: dict[str, str] = {}
    for column in schema.fields:
        field = known.get(column.name)
        value = f"{alias}.{identifier(column.name)}"
        name = field.first_name if field else column.name
        parts[name] = _part(name, value, _text(column.field_type, field.type if field else None, value, 0))
    return f"md5_number_upper(concat('', {', '.join(parts[name] for name in sorted(parts))}))"


def sum_sql(hashes: str) -> str:
    """Return SQL of the hash (BIGINT) of a set of rows: an aggregate over hashes of rows or of other sets."""
    total = f"coalesce(sum({hashes}), 0) % {2 * _BACK}"  # with the sign of the sum
    return f"(({total} + {3 * _BACK}) % {2 * _BACK} - {_BACK})::BIGINT"


def _by_name(fields: Iterable[Field]) -> dict[str, Field]:
    return {name: field for field in fields for name in (field.name, *field.former_names)}


def _part(name: str, value: str, text: str) -> str:
    """Return arguments of SQL's concat for a column: its name, the length of its text, and the text; nulls for null."""
    # Not joined by ||, whose every use copies the text: DuckDB took half as long again. It computes `text` once.
    there = f"CASE WHEN {value} IS NOT NULL THEN"
    return f"{there} {_label(name)} END, strlen({text}), {there} ':' END, {text}"


def _label(name: str) -> str:
    return quoted(f"{len(name.encode())}:{name}")


def _named(parts: dict[str, str]) -> str:
    """Return SQL of parts with their names, sorted by name, without nulls."""
    labels = {name: _label(name) for name in parts}
    return f"concat('', {', '.join(f'{labels[name]} || {parts[name]}' for name in sorted(parts))})"


def _framed(kind: "IcebergType", declared: Type | None, value: str, depth: int) -> str:
    """Return SQL of a text, preceded by its length; null for null."""
    text = _text(kind, declared, value, depth)
    if kind.is_primitive:
        return f"strlen({text}) || ':' || {text}"
    framed = f"_text_{depth}"  # a variable: the SQL of the text is long, and nested; no field begins with an underscore
    return f"[strlen({framed}) || ':' || {framed} FOR {framed} IN [{text}]][1]"


def _text(kind: "IcebergType", declared: Type | None, value: str, depth: int) -> str:
    from pyiceberg import types

    match kind:
        case types.StructType():
            return f"CASE WHEN {value} IS NOT NULL THEN {_object(kind, declared, value, depth)} END"
        case types.ListType():
            item = declared.item if isinstance(declared, ListType) else None
            each = f"_item_{depth}"
            inner = _framed(kind.element_type, item, each, depth + 1)
            return f"array_to_string([coalesce({inner}, '-') FOR {each} IN {value}], '')"
        case types.MapType():
            item = declared.value if isinstance(declared, MapType) else None
            each = f"_entry_{depth}"
            key = _framed(kind.key_type, None, f"{each}.key", depth + 1)
            inner = _framed(kind.value_type, item, f"{each}.value", depth + 1)
            pairs = f"[{key} || coalesce({inner}, '-') FOR {each} IN map_entries({value})]"
            return f"array_to_string(list_sort({pairs}), '')"
        case types.StringType():
            return value
        case types.BinaryType() | types.FixedType():
            return f"hex({value})"
        case types.FloatType() | types.DoubleType():
            return f"({value}::DOUBLE + 0)::BIT::BIGINT::VARCHAR"  # 0.0 for -0.0
        case types.TimestampType() | types.TimestamptzType():
            return f"epoch_us({value})::VARCHAR"
        case types.DateType():
            return f"({value} - DATE '1970-01-01')::VARCHAR"
        case types.DecimalType():
            return _decimal(kind.precision, kind.scale, value)
        case _:
            return f"{value}::VARCHAR"


def _object(kind: "IcebergType", declared: Type | None, value: str, depth: int) -> str:
    known = _by_name(declared.fields if isinstance(declared, ObjectType) else ())
    parts = {}
    for child in getattr(kind, "fields", ()):
        field = known.get(child.name)
        inner = f"{value}.{identifier(child.name)}"
        name, of = (field.first_name, field.type) if field else (child.name, None)
        parts[name] = _framed(child.field_type, of, inner, depth + 1)
    return _named(parts)


def _decimal(precision: int, scale: int, value: str) -> str:
    """Return SQL of a decimal as Arrow writes it: with all decimals, or, close to 0, with an exponent."""
    sign = f"CASE WHEN {value} < 0 THEN '-' ELSE '' END"
    plain = f"{value}::VARCHAR"
    if precision == scale:  # DuckDB omits the 0 before the decimal point
        plain = f"({sign} || '0' || ltrim({plain}, '-'))"
    if scale <= _PLAIN_SCALE:
        return plain
    digits = f"coalesce(nullif(ltrim({value}::VARCHAR, '-0.'), ''), '0')"
    exponent = f"(strlen({digits}) - 1 - {scale})"
    fraction = f"CASE WHEN strlen({digits}) > 1 THEN '.' || {digits}[2:] ELSE '' END"
    scientific = f"{sign} || {digits}[1] || {fraction} || 'E' || {exponent}"
    least = f"'{_PLAIN}'::DECIMAL({precision}, {scale})"
    return f"CASE WHEN abs({value}) < {least} THEN {scientific} ELSE {plain} END"
