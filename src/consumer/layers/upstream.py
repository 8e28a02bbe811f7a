"""The silver table that a layer follows, and the contract under which its rows were decided."""

from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, lru_cache

from pyspark.sql import SparkSession

from consumer.iceberg.append import OpenTable, open_table
from consumer.iceberg.marker import Committed, MarkerLostError
from lakeproof.contracts import Contract, parse_contract
from lakeproof.errors import LakeproofError
from lakeproof.state.contract_log import ContractLog
from lakeproof.tables.names import silver_query, silver_tables

_MICROSECOND = timedelta(microseconds=1)


class SilverLostError(LakeproofError):
    """Silver was rolled back or replaced. The remedy is the same for every layer that finds this first."""


@dataclass(frozen=True)
class Upstream:
    """Silver as its newest marker describes it."""

    table: OpenTable
    newest: Committed
    contracts: ContractLog

    @cached_property
    def contract(self) -> Contract:
        """The contract under which the newest rows were decided."""
        return contract_of_silver(self.contracts, self.newest.marker.contract, self.table.name)

    @property
    def id(self) -> str:
        """Unique id of the table; a table that replaces it has another id."""
        return self.table.table_id()

    @property
    def end(self) -> int:
        """The micro-batch of bronze before which silver has decided everything."""
        return int(self.newest.marker.end)

    @property
    def horizon(self) -> int | None:
        """Event time before which silver keeps no more rows, in microseconds since 1970; None if unknown."""
        length = self.contract.silver.horizon if self.contract.silver else None
        if not self.newest.marker.contents or length is None:
            return None
        return int(self.newest.marker.contents) - length // _MICROSECOND

    def start_of(self, table: str, *markers: Committed | None) -> int:
        """Return the first micro-batch that a table lacks, according to the last marker; check all markers."""
        for found in filter(None, markers):
            if found.marker.checkpoint_id != self.id:
                raise MarkerLostError(
                    f"{table} was filled from another {self.table.name}, which was replaced since then."
                )
            if int(found.marker.end) > self.end:
                raise MarkerLostError(
                    f"{table} is at micro-batch {found.marker.end}, but {self.table.name} is at {self.end}: they are "
                    "from different points in time."
                )
        last = markers[-1]
        return int(last.marker.end) if last else 0


def upstream_of(spark: SparkSession, stream: str, contracts: ContractLog) -> Upstream | None:
    """Read the newest marker of a stream's silver; None if nothing has been decided yet."""
    table = open_table(spark, silver_tables(stream).kept, silver_query(stream))
    try:
        newest = table.newest()
    except MarkerLostError as error:
        raise SilverLostError(error.message, rebuild_silver_hint(stream)) from error
    return Upstream(table, newest, contracts) if newest else None


def rebuild_silver_hint(stream: str) -> str:
    """Return the hint for rows of silver that cannot be trusted."""
    return f"Run `consumer rebuild silver {stream}`, to fill silver again from bronze."


def contract_of_silver(contracts: ContractLog, digest: str, table: str) -> Contract:
    """Return the contract under which a silver table was filled."""
    missing = f"{table} was filled under the contract {digest[:12]}…, which the landing log does not have."
    return recorded_contract(contracts, digest, missing)


def recorded_contract(contracts: ContractLog, digest: str, missing: str) -> Contract:
    """Return a contract by its digest; raise LakeproofError with the text `missing` if the landing log lacks it."""
    text = contracts.text(digest)
    if text is None:
        raise LakeproofError(missing, "Restore the landing log's database, or set LAKE_LANDING_LOG_URI to its address.")
    return _parsed(text, f"contract {digest[:12]}")


_parsed = lru_cache(maxsize=64)(parse_contract)  # each micro-batch of each layer asks for the same contract
