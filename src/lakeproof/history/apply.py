"""Apply a contract to a stream's tables: columns are added, renamed and widened; nothing is dropped or narrowed.

The tables change first, then ``ops.schema_changes`` records the change, then a running consumer is notified. Completed
steps are skipped, so that repeating the command after a crash completes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeproof.catalog import table_or_none
from lakeproof.contracts import Contract, contract_text, parse_contract
from lakeproof.contracts.diff import Change, changes
from lakeproof.documents.names import OTHER_TABLES
from lakeproof.errors import UsageError
from lakeproof.history.applied import Applied, applied_contracts, record
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.tables.evolution import evolve, lacking, renamed_columns, wider
from lakeproof.tables.names import silver_tables, stream_tables
from lakeproof.tables.schemas import bronze_schema, ensure_silver_tables, ensure_tables

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


@dataclass(frozen=True)
class ApplyPlan:
    """The steps that make a stream's tables follow a contract."""

    contract: Contract
    text: bytes
    past: tuple[Applied, ...]  # applied before, newest last
    changes: tuple[Change, ...]  # against the newest applied contract
    columns: tuple[str, ...]  # fields that bronze lacks, or has with a narrower type
    creates: bool  # whether tables are created

    @property
    def applied(self) -> Applied | None:
        """The newest applied contract, if any."""
        return self.past[-1] if self.past else None

    @property
    def is_applied(self) -> bool:
        """Whether the tables already follow the contract."""
        return self.applied is not None and self.applied.digest == self.contract.digest and not self.columns


def plan(catalog: "Catalog", settings: Settings, stream: str) -> ApplyPlan:
    """Compare a stream's contract with the applied one and with bronze, without changing anything."""
    text = contract_text(settings.contracts, stream)
    return plan_text(catalog, stream, text, str(settings.contracts / f"{stream}.yaml"))


def plan_text(catalog: "Catalog", stream: str, text: bytes, origin: str) -> ApplyPlan:
    """Compare the text of a contract from the path `origin`, like :func:`plan`."""
    contract = parse_contract(text, origin, stream)
    past = applied_contracts(catalog, stream)
    bronze = table_or_none(catalog, stream_tables(stream).bronze)
    before = past[-1].contract() if past else None
    if bronze is None:
        _check_names_free(catalog, stream, origin)
    elif before is None:
        _check_made_by(contract, bronze)
    found = changes(before, contract) if before else ()
    _check_possible(contract, before, found)
    _check_version(contract, past)
    columns: list[str] = []
    if bronze is not None:
        # Missing columns of lakeproof's own are not part of the contract.
        own = {path for path in bronze_schema(before or contract).column_names if path.startswith("_")}
        columns = [path for path in lacking(bronze.schema(), bronze_schema(contract)) if path not in own]
        _check_not_ahead(contract, bronze)
    return ApplyPlan(contract, text, past, found, tuple(columns), bronze is None)


def carry_out(catalog: "Catalog", planned: ApplyPlan, log: ContractLog) -> None:
    """Apply a contract: change the tables, record it in ``ops.schema_changes``, notify a running consumer."""
    contract = planned.contract
    ensure_tables(catalog, contract)
    evolve(catalog.load_table(stream_tables(contract.stream).bronze), bronze_schema(contract), contract.renamed)
    silver = silver_tables(contract.stream)
    if catalog.table_exists(silver.kept):
        ensure_silver_tables(catalog, contract, silver)
    if planned.applied is None or planned.applied.digest != contract.digest:
        record(catalog, contract, planned.text, lines(planned.changes), planned.applied)
    log.make_current(contract.stream, contract.digest, planned.text)


def adopt(catalog: "Catalog", settings: Settings, stream: str, log: ContractLog) -> Contract:
    """Make a contract current when a consumer starts, unless columns would have to change; create missing tables."""
    while True:
        planned = plan(catalog, settings, stream)
        if planned.columns:
            raise UsageError(
                f"Contract {planned.contract.version} of {stream} has not been applied: bronze.{stream} does not have "
                f"{', '.join(planned.columns)}, or has a narrower type.",
                f"Run `lakeproof contract apply {stream}`.",
            )
        carry_out(catalog, planned, log)
        for each in planned.past:  # restores the texts in a landing log that was lost
            log.keep(each.digest, each.text)
        # A contract that was applied concurrently may have become current before this one.
        if applied_contracts(catalog, stream)[-1].digest == planned.contract.digest:
            return planned.contract


def lines(found: Sequence[Change]) -> list[str]:
    """Format each change as one line of text."""
    return [f"{change.field}: {change.what}" if change.field else change.what for change in found]


def _check_possible(contract: Contract, before: Contract | None, found: Sequence[Change]) -> None:
    refused = [
        f"{line} ({change.obstacle})" for change, line in zip(found, lines(found), strict=True) if change.obstacle
    ]
    if before and refused:
        raise UsageError(
            f"Cannot change the tables of {contract.stream} from contract {before.version} to {contract.version}: "
            f"{'; '.join(refused)}.",
            "You can add optional fields, widen types, make fields optional, rename fields, and drop deprecated ones; "
            "see docs/contracts/change.md. For anything else, use a new field or a new stream.",
        )


def _check_version(contract: Contract, past: Sequence[Applied]) -> None:
    """Refuse an incompatible change without a new version: rows name their contract by version."""
    for each in past:
        if each.version == contract.version and each.digest != contract.digest:
            found = changes(each.contract(), contract)
            if any(not (change.backward and change.forward) for change in found):
                raise UsageError(
                    f"The contract of {contract.stream} has changed ({'; '.join(lines(found))}), but version "
                    f"{contract.version} was applied before.",
                    "Increase the version: each row records the version of the contract that judged it.",
                )


def _check_names_free(catalog: "Catalog", stream: str, origin: str) -> None:
    """Check that no table of a new stream is one of another stream, also if that was created first."""
    for ending in OTHER_TABLES:
        for other in {f"{stream}{ending}", stream.removesuffix(ending)} - {stream}:
            if catalog.table_exists(stream_tables(other).bronze):
                raise UsageError(
                    f"The stream {stream} cannot be created beside the stream {other}: two of their tables would have "
                    "the same name.",
                    f"Rename {origin}, and the stream in it.",
                )


def _check_made_by(contract: Contract, bronze: "Table") -> None:
    """Check that tables without a recorded contract were created under this contract."""
    expected, found = bronze_schema(contract), bronze.schema()
    differ = {*lacking(found, expected), *lacking(expected, found)}
    if fields := sorted(path for path in differ if not path.startswith("_")):
        raise UsageError(
            f"The lake has no record of the contract of bronze.{contract.stream}, and contract {contract.version} "
            f"does not match the table: {', '.join(fields)} differ.",
            f"Restore the old contract, run `lakeproof contract apply {contract.stream}`, then apply this one.",
        )


def _check_not_ahead(contract: Contract, bronze: "Table") -> None:
    """Refuse a contract without the changes that an interrupted `apply` of another one has made to the columns."""
    known, has = {*contract.renamed, *(field.name for field in contract)}, bronze.schema()
    begun = [
        f"renaming {old} to {new}"
        for old, new in renamed_columns(bronze.properties).items()
        if new not in known and new in has.column_names
    ]
    if widened := wider(has, bronze_schema(contract)):
        begun.append(f"widening {', '.join(widened)}")
    if begun:
        raise UsageError(
            f"Applying another contract of {contract.stream} was interrupted: it was {', and '.join(begun)}. "
            f"Contract {contract.version} does not have these changes.",
            "Apply that contract again, or make the same changes in this one.",
        )
