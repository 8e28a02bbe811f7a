"""A table as verify reads it: as of the snapshot that its marker was read with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeproof.contracts import Contract
from lakeproof.tables.names import INGESTED_AT, MICRO_BATCH_ID, stream_tables
from reader.connect import Session
from reader.verify.gold.windows import micros
from reader.verify.silver.content import event_time, microseconds
from reader.verify.tables import marker_end, newest_marker

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


@dataclass(frozen=True)
class Layer:
    """A table as of a snapshot.

    Parameters
    ----------
    name
        Its name.
    id
        Its unique id, which another table of its name does not have.
    rows
        SQL of its rows; None if nothing was ever committed to it.
    columns
        Names of its columns.
    properties
        Its properties.
    marker
        The newest marker of the query that fills it.
    """

    name: str
    id: str
    rows: str | None
    columns: frozenset[str]
    properties: Mapping[str, str]
    marker: Mapping[str, str]

    @property
    def end(self) -> int:
        """The micro-batch before which it has everything."""
        return marker_end(self.marker)


def layer_of(catalog: "Catalog", name: str, query: str) -> Layer | None:
    """A table as it is now; None if it does not exist."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        return None
    snapshot = table.current_snapshot()
    return Layer(
        name=name,
        id=str(table.metadata.table_uuid),
        rows=f"(FROM {name} AT (VERSION => {snapshot.snapshot_id}))" if snapshot else None,
        columns=frozenset(field.name for field in table.schema().fields),
        properties=table.properties,
        marker=newest_marker(table, query),
    )


def rebuild_hint(product: str) -> str:
    """What to do where the tables of a product cannot be compared."""
    return f"Run `consumer rebuild gold {product}`, to fill it again from silver."


def horizons(session: Session, contract: Contract, ends: tuple[int, int]) -> tuple[int | None, ...]:
    """The horizon of silver after the micro-batches before each number, recomputed from bronze."""
    length = contract.silver.horizon if contract.silver else None
    if length is None:
        return (None, None)
    time, ingested = event_time(contract, "_bronze"), microseconds(f"_bronze.{INGESTED_AT}")
    # Where there is no event time, DuckDB's least would be the other one.
    counted = f"CASE WHEN {time} IS NOT NULL THEN least({time}, {ingested}) END"
    newest = ", ".join(f"max({counted}) FILTER ({MICRO_BATCH_ID} < {end})" for end in ends)
    (found,) = session.fetch(f"SELECT {newest} FROM {stream_tables(contract.stream).bronze} AS _bronze")  # noqa: S608
    return tuple(None if each is None else each - micros(length) for each in found)


def time_text(session: Session, at: int | None) -> str:
    """A time for people: Python's datetime does not have every year."""
    ((text,),) = session.fetch("SELECT coalesce(make_timestamptz(?::BIGINT)::VARCHAR, 'never')", [at])
    return str(text)
