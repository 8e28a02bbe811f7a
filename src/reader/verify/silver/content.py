"""SQL of values in a form in which equal ones are the same: of maps, the order of entries does not count."""

from datetime import timedelta

from lakeproof.catalog import quoted
from lakeproof.contracts import Contract, DecimalType, Field, ListType, MapType, ObjectType, PrimitiveType, Type
from lakeproof.tables.names import INGESTED_AT
from reader.views import identifier


def comparable(contract: Contract, columns: str) -> dict[str, str]:
    """SQL of each field of a contract, by its name, in a comparable form; `columns` is the alias of the table."""
    return {field.name: _value(field.type, f"{columns}.{identifier(field.name)}", 0) for field in contract}


def key(contract: Contract, columns: str) -> list[str]:
    """SQL of the fields of the primary key, in a comparable form."""
    values = comparable(contract, columns)
    return [values[name] for name in contract.primary_key]


def content(contract: Contract, columns: str) -> str:
    """SQL of a digest of all fields that come from records, the same for the same content: a record may be large."""
    values = comparable(contract, columns)
    landed = {field.name: values[field.name] for field in contract if not field.derived}
    return f"unhex(sha256(to_json({_struct(landed)})::VARCHAR))"


def event_time(contract: Contract, columns: str) -> str:
    """SQL of the event time in microseconds since 1970."""
    return microseconds(".".join([columns, *map(identifier, contract.event_time.split("."))]))


def microseconds(timestamp: str) -> str:
    """SQL of a timestamp in microseconds since 1970: Python's datetime does not have every year that bronze has."""
    return f"epoch_us({timestamp})"


def micros(length: timedelta) -> int:
    """A length of time in microseconds."""
    return length // timedelta(microseconds=1)


def counted_time(contract: Contract, columns: str) -> str:
    """SQL of the time of a row of bronze that moves the horizon: its event time, but no time of the future."""
    time = event_time(contract, columns)
    # Where there is no event time, DuckDB's least would be the time of ingestion.
    return f"CASE WHEN {time} IS NOT NULL THEN least({time}, {microseconds(f'{columns}.{INGESTED_AT}')}) END"


def entries(value: str) -> str:
    """SQL of a map of texts, in a comparable form."""
    return _value(MapType(PrimitiveType.STRING), value, 0)


def _value(kind: Type, value: str, depth: int) -> str:
    match kind:
        case PrimitiveType.FLOAT | PrimitiveType.DOUBLE:
            return f"({value}::DOUBLE + 0)"  # 0.0 for -0.0
        case PrimitiveType.TIMESTAMP:
            return microseconds(value)
        case DecimalType():
            return f"{value}::VARCHAR"
        case MapType():
            entry = f"entry_{depth}"
            entries = _struct({"key": f"{entry}.key", "value": _value(kind.value, f"{entry}.value", depth + 1)})
            return f"list_sort([{entries} FOR {entry} IN map_entries({value})])"
        case ListType():
            item = f"item_{depth}"
            return f"[{_value(kind.item, item, depth + 1)} FOR {item} IN {value}]"
        case ObjectType():
            return f"CASE WHEN {value} IS NOT NULL THEN {_object(kind.fields, value, depth)} END"
        case _:
            return value


def _object(fields: tuple[Field, ...], value: str, depth: int) -> str:
    return _struct({each.name: _value(each.type, f"{value}.{identifier(each.name)}", depth) for each in fields})


def _struct(values: dict[str, str]) -> str:
    return "{" + ", ".join(f"{quoted(name)}: {value}" for name, value in values.items()) + "}"
