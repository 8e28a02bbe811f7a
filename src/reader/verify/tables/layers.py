"""Tables of layers, read as of the snapshot with which the marker was read."""

import json
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import SQLAlchemyError

from lakeproof.addresses import sqlalchemy_uri, sqlite_path
from lakeproof.catalog import table_or_none
from lakeproof.contracts import Contract, load_contract
from lakeproof.errors import UnavailableError
from lakeproof.history.applied import applied_contracts
from lakeproof.settings import Settings
from lakeproof.state.lease import QueryState, state_in
from lakeproof.tables.names import MARKER, MICRO_BATCH_ID, silver_tables, stream_tables
from reader.connect import Session
from reader.verify.silver.content import counted_time, micros

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from reader.metadata import TableMetadata

FoundT = TypeVar("FoundT")


@dataclass(frozen=True)
class Layer:
    """A table as of a snapshot."""

    name: str
    id: str  # UUID: differs if the table was replaced by one with the same name
    rows: str | None  # SQL of its rows; None if nothing was ever committed
    columns: frozenset[str]
    properties: Mapping[str, str]
    marker: Mapping[str, str]  # newest marker of the query that fills the table
    table: "Table" = field(compare=False, repr=False)
    snapshot_id: int | None = None

    @property
    def end(self) -> int:
        """The micro-batch before which the table is complete."""
        return marker_end(self.marker)


def layer_of(catalog: "Catalog", name: str, query: str) -> Layer | None:
    """Return the current state of a table; None if it does not exist."""
    table = table_or_none(catalog, name)
    if table is None:
        return None
    snapshot = table.current_snapshot()
    return Layer(
        name=name,
        id=str(table.metadata.table_uuid),
        rows=f"(FROM {name} AT (VERSION => {snapshot.snapshot_id}))" if snapshot else None,
        columns=frozenset(field.name for field in table.schema().fields),
        properties=table.properties,
        marker=newest_marker(table, query),
        table=table,
        snapshot_id=snapshot.snapshot_id if snapshot else None,
    )


def newest_marker(table: "Table | TableMetadata", query: str) -> Mapping[str, str]:
    """Return the newest marker of a query in a table; empty before the first micro-batch.

    The marker is a table property. If it was removed, the newest snapshot that has a marker is used.
    """
    text, snapshot = table.properties.get(MARKER + query), table.current_snapshot()
    while not text and snapshot:
        text = snapshot.summary.get(MARKER + query) if snapshot.summary else None
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return _marker(text)


def marker_in(properties: Mapping[str, str], query: str) -> Mapping[str, str]:
    """Return the marker of a query from the properties of a table; empty without a marker."""
    return _marker(properties.get(MARKER + query))


def _marker(text: str | None) -> Mapping[str, str]:
    found: Mapping[str, str] = json.loads(text)["marker"] if text else {}
    return found


def marker_end(marker: Mapping[str, str]) -> int:
    """Return the micro-batch before which a table is complete."""
    return int(marker.get("end", 0))


def missing_silver(catalog: "Catalog", stream: str) -> list[str]:
    """Return the names of the silver tables of a stream that do not exist."""
    return [name for name in astuple(silver_tables(stream)) if not catalog.table_exists(name)]


def silver_contract(settings: Settings, catalog: "Catalog", stream: str, marker: Mapping[str, str]) -> Contract:
    """Return the contract that silver was filled under; before the first micro-batch, the newest one."""
    applied = applied_contracts(catalog, stream)
    digest = marker.get("contract", applied[-1].digest if applied else None)
    for each in applied:
        if each.digest == digest:
            # The table has the columns of the newest contract: fields may have been renamed since then.
            return replace(each.contract(), fields=applied[-1].contract().fields)
    contract = load_contract(settings.contracts, stream)
    if digest not in (None, contract.digest):
        raise UnavailableError(
            f"The lake has no record of the contract {digest[:12]}… that silver.{stream} was filled under.",
            "Restore ops.schema_changes, or the file of the contract.",
        )
    return contract


def query_state(settings: Settings, lease: str) -> QueryState:
    """Return the state of the query that holds a lease; ``NEVER`` if the database cannot be read."""
    return read_state(settings, lambda connection: state_in(connection, lease), QueryState.NEVER)


def read_state(settings: Settings, read: Callable[[Connection], FoundT], otherwise: FoundT) -> FoundT:
    """Read the state database; return `otherwise` if that fails. Unlike the consumer, do not create or migrate it."""
    path = sqlite_path(settings.state.database)
    if path and not path.exists():
        return otherwise
    engine = create_engine(sqlalchemy_uri(settings.state.database))
    try:
        with engine.connect() as connection:
            return read(connection)
    except SQLAlchemyError:
        return otherwise
    finally:
        engine.dispose()


def horizons(
    session: Session, contract: Contract, ends: tuple[int, int], proven: tuple[int, int | None] = (0, None)
) -> tuple[int | None, ...]:
    """Recompute the horizon of silver from bronze, after the micro-batches before each number.

    `proven` is a micro-batch, and the newest time before it; rows before it need not be read again.
    """
    length = contract.silver.horizon if contract.silver else None
    if length is None:
        return (None, None)
    counted = counted_time(contract, "_bronze")
    newest = ", ".join(f"max({counted}) FILTER ({MICRO_BATCH_ID} < {end})" for end in ends)
    start, before = proven if proven[0] <= min(ends) else (0, None)
    where = f"WHERE {MICRO_BATCH_ID} >= {start}" if start else ""
    (found,) = session.fetch(f"SELECT {newest} FROM {stream_tables(contract.stream).bronze} AS _bronze {where}")
    times = [max((time for time in (each, before) if time is not None), default=None) for each in found]
    return tuple(None if each is None else each - micros(length) for each in times)
