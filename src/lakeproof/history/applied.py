"""``ops.schema_changes``: which contracts were applied to a stream's tables, with their texts.

The lake itself so has the contract of each row that it holds, and says which one is applied: the newest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakeproof.contracts import Contract, parse_contract
from lakeproof.errors import LakeproofError
from lakeproof.tables.names import SCHEMA_CHANGES
from lakeproof.tables.schemas import ensure_schema_changes

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_ATTEMPTS = 10


class AppliedMeanwhileError(LakeproofError):
    """Another contract was applied to the stream since its newest one was looked up."""

    retryable = True


@dataclass(frozen=True)
class Applied:
    """A contract that was applied.

    Parameters
    ----------
    number
        1 for the stream's first, then 2, and so on.
    version, digest, text
        Of the contract.
    """

    number: int
    version: str
    digest: str
    text: bytes

    def contract(self) -> Contract:
        """The contract itself."""
        return parse_contract(self.text, f"contract {self.digest[:12]}")


def applied_contracts(catalog: "Catalog", stream: str) -> tuple[Applied, ...]:
    """Contracts that were applied to a stream, the newest last."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        table = catalog.load_table(SCHEMA_CHANGES)
    except NoSuchTableError:
        return ()
    return _applied(table, stream)


def record(catalog: "Catalog", contract: Contract, text: bytes, changes: Sequence[str], before: Applied | None) -> None:
    """Write that a contract was applied; `before` is the stream's newest one by then.

    Raises
    ------
    AppliedMeanwhileError
        `before` is not the newest one any more.
    """
    import pyarrow as pa
    from pyiceberg.exceptions import CommitFailedException

    table = ensure_schema_changes(catalog)
    row = {
        "stream": contract.stream,
        "number": before.number + 1 if before else 1,
        "from_version": before.version if before else None,
        "to_version": contract.version,
        "from_digest": before.digest if before else None,
        "to_digest": contract.digest,
        "changes": list(changes),
        "contract": text.decode(),
        "applied_at": datetime.now(UTC),
    }
    for _ in range(_ATTEMPTS):
        table.refresh()
        if _applied(table, contract.stream)[-1:] != ((before,) if before else ()):
            break
        try:
            table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))
        except CommitFailedException:  # somebody else's row: look whether it is one of this stream
            continue
        return
    raise AppliedMeanwhileError(
        f"Another contract was applied to the stream {contract.stream} at the same time.", "Try again."
    )


def _applied(table: "Table", stream: str) -> tuple[Applied, ...]:
    columns = ("number", "to_version", "to_digest", "contract")
    rows = table.scan(f"stream = '{stream}'", selected_fields=columns).to_arrow().to_pylist()
    found = (Applied(row["number"], row["to_version"], row["to_digest"], row["contract"].encode()) for row in rows)
    return tuple(sorted(found, key=lambda each: each.number))
