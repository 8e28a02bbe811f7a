"""SQL of values in a normal form for comparison: the order of map entries does not matter."""

from datetime import timedelta

from lakeproof.catalog import quoted
from lakeproof.contracts import Contract, DecimalType, Field, ListType, MapType, ObjectType, PrimitiveType, Type
from lakeproof.tables.names import INGESTED_AT
from reader.views import identifier


def comparable(contract: Contract, columns: str) -> dict[str, str]:
    """Return SQL of each field of a contract in normal form, by name; `columns` is the alias of the table."""
    return {field.name: _of_field(field, columns) for field in contract}


def key(contract: Contract, columns: str) -> list[str]:
    """Return SQL of the fields of the primary key, in normal form."""
    values = comparable(contract, columns)
    return [values[name] for name in contract.primary_key]


def content(contract: Contract, columns: str) -> str:
    """Return SQL of a digest of all fields that are not derived: equal for equal content, however large the record.

    As in silver, null lists and maps of objects have the content of empty ones.
    """
    landed = {field.name: _of_field(field, columns, fill=True) for field in contract if not field.derived}
    return f"unhex(sha256(to_json({_struct(landed)})::VARCHAR))"


def event_time(contract: Contract, columns: str) -> str:
    """Return SQL of the event time in microseconds since 1970."""
    return microseconds(".".join([columns, *map(identifier, contract.event_time.split("."))]))


def microseconds(timestamp: str) -> str:
    """Return SQL of a timestamp in microseconds since 1970: Python's datetime does not have every year in bronze."""
    return f"epoch_us({timestamp})"


def micros(length: timedelta) -> int:
    """Return a duration in microseconds."""
    return length // timedelta(microseconds=1)


def counted_time(contract: Contract, columns: str) -> str:
    """Return SQL of the time with which a bronze row moves the horizon: its event time, but no future time."""
    time = event_time(contract, columns)
    # Without an event time, DuckDB's least would return the time of ingestion.
    return f"CASE WHEN {time} IS NOT NULL THEN least({time}, {microseconds(f'{columns}.{INGESTED_AT}')}) END"


def entries(value: str) -> str:
    """Return SQL of a map of strings, in normal form."""
    return _value(MapType(PrimitiveType.STRING), value, 0)


def _of_field(field: Field, columns: str, *, fill: bool = False) -> str:
    return _value(field.type, f"{columns}.{identifier(field.name)}", 0, fill=fill)


def _value(kind: Type, value: str, depth: int, *, fill: bool = False) -> str:
    """Return SQL of a value in normal form; `fill` replaces null lists and maps of objects by empty ones."""
    match kind:
        case PrimitiveType.FLOAT | PrimitiveType.DOUBLE:
            return f"({value}::DOUBLE + 0)"  # 0.0 for -0.0
        case PrimitiveType.TIMESTAMP:
            return microseconds(value)
        case DecimalType():
            return f"{value}::VARCHAR"
        case MapType():
            entry = f"_entry_{depth}"
            inner = _value(kind.value, f"{entry}.value", depth + 1, fill=fill)
            entries = _struct({"key": f"{entry}.key", "value": inner})
            listed = f"list_sort([{entries} FOR {entry} IN map_entries({value})])"
            return f"coalesce({listed}, [])" if fill and isinstance(kind.value, ObjectType) else listed
        case ListType():
            item = f"_item_{depth}"  # no field begins with an underscore
            listed = f"[{_value(kind.item, item, depth + 1, fill=fill)} FOR {item} IN {value}]"
            return f"coalesce({listed}, [])" if fill and isinstance(kind.item, ObjectType) else listed
        case ObjectType():
            return f"CASE WHEN {value} IS NOT NULL THEN {_object(kind.fields, value, depth, fill=fill)} END"
        case _:
            return value


def _object(fields: tuple[Field, ...], value: str, depth: int, *, fill: bool) -> str:
    return _struct(
        {each.name: _value(each.type, f"{value}.{identifier(each.name)}", depth, fill=fill) for each in fields}
    )


def _struct(values: dict[str, str]) -> str:
    return "{" + ", ".join(f"{quoted(name)}: {value}" for name, value in values.items()) + "}"
