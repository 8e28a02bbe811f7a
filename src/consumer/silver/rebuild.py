"""Fill a stream's silver again from bronze, beside the one that is there, and put it in its place."""

from collections.abc import Callable
from dataclasses import astuple
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from consumer.commit.rebuilding import begun_suffixes, new_suffix, put_in_place
from consumer.silver.micro_batches import SilverMicroBatches
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.contracts import Contract
from lakeproof.errors import UsageError
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import lease, silver_lease
from lakeproof.tables.names import MARKER, SilverTables, silver_tables, stream_tables
from lakeproof.tables.schemas import ensure_silver_tables

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


def rebuild_silver(settings: Settings, contract: Contract, session: Callable[[], SparkSession]) -> str:
    """Fill a stream's silver again; return a line that says what was done.

    Bronze may grow meanwhile: the next run goes on from where this one ends. One that was interrupted goes on, too.

    Raises
    ------
    LeaseHeldError
        A consumer fills silver.
    UsageError
        The stream has no tables yet.
    """
    stream = contract.stream
    contracts = ContractLog(settings.state.database)
    with lease(settings.state.database, silver_lease(stream)) as held:
        with catalog_errors():
            catalog = open_catalog(settings)
            if not catalog.table_exists(stream_tables(stream).bronze):
                raise UsageError(f"{stream} has no tables yet.", f"Run `consumer run {stream}` first.")
            begun = begun_suffixes(catalog, silver_tables(stream).kept)
            building = silver_tables(stream, begun[-1] if begun else new_suffix())
            if not _is_swapping(catalog, building):
                ensure_silver_tables(catalog, contract, building)
        process = SilverMicroBatches(settings, stream, building, contracts, held)
        if not _is_swapping(catalog, building):
            spark = session()
            while process.take(spark):
                pass
            process.close()
        with catalog_errors():
            _swap(catalog, building, silver_tables(stream))
    return f"Rebuilt silver.{stream} from bronze.{stream}. The files of the old tables were not removed."


def _is_swapping(catalog: "Catalog", building: SilverTables) -> bool:
    """Whether an earlier run was interrupted while it put the new tables in place; silver itself is the last one."""
    if not catalog.table_exists(building.kept) or all(catalog.table_exists(name) for name in astuple(building)):
        return False
    return any(name.startswith(MARKER) for name in catalog.load_table(building.kept).properties)


def _swap(catalog: "Catalog", building: SilverTables, silver: SilverTables) -> None:
    for new, name in (
        (building.conflicts, silver.conflicts),
        (building.late, silver.late),
        (building.ledger, silver.ledger),
        (building.kept, silver.kept),
    ):
        if catalog.table_exists(new):
            put_in_place(catalog, new, name)
