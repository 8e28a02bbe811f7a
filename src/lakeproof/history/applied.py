"""``ops.schema_changes``: the contracts that were applied to a stream's tables, with their texts.

With this table, the lake itself contains the contract of each row. The newest contract is the applied one.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from lakeproof.catalog import table_or_none
from lakeproof.commit_checks import check_format
from lakeproof.contracts import Contract, parse_contract
from lakeproof.errors import LakeproofError
from lakeproof.tables.names import SCHEMA_CHANGES
from lakeproof.tables.schemas import ensure_schema_changes

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_ATTEMPTS = 10
_LONGEST_WAIT = 0.5  # seconds


class AppliedMeanwhileError(LakeproofError):
    """Another contract was applied concurrently."""

    retryable = True


@dataclass(frozen=True)
class Applied:
    """A contract that was applied."""

    number: int  # 1 for the stream's first contract
    version: str
    digest: str
    text: bytes

    def contract(self) -> Contract:
        """Parse the text of the contract."""
        return parse_contract(self.text, f"contract {self.digest[:12]}", is_recorded=True)


class _RefusedError(Exception):
    """The catalog refused a commit, but the commit may have succeeded."""


class _UncertainCatalog:
    """A catalog whose refusal of a commit is uncertain.

    If a commit is sent twice, the catalog refuses the second one. PyIceberg then assumes that the commit failed and
    deletes its manifests or, with retries, adds the row again.
    """

    def __init__(self, catalog: "Catalog") -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, *arguments: Any, **named: Any) -> Any:
        from pyiceberg.exceptions import CommitFailedException

        try:
            return self._catalog.commit_table(*arguments, **named)
        except CommitFailedException as error:
            raise _RefusedError from error


def applied_contracts(catalog: "Catalog", stream: str) -> tuple[Applied, ...]:
    """Return the contracts that were applied to a stream, newest last."""
    table = table_or_none(catalog, SCHEMA_CHANGES)
    return () if table is None else _applied(table, stream)


def record(catalog: "Catalog", contract: Contract, text: bytes, changes: Sequence[str], before: Applied | None) -> None:
    """Record that a contract was applied after `before`, the newest one so far."""
    import pyarrow as pa

    table = ensure_schema_changes(catalog)
    check_format(SCHEMA_CHANGES, table.format_version)  # an append fails before it commits
    table.catalog = cast("Catalog", _UncertainCatalog(table.catalog))
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
    for attempt in range(_ATTEMPTS):
        table.refresh()
        newest = _applied(table, contract.stream)[-1:]
        if attempt and [(each.number, each.digest) for each in newest] == [(row["number"], contract.digest)]:
            return  # the commit succeeded, but its answer was lost
        if newest != ((before,) if before else ()):
            break
        try:
            table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))
        except _RefusedError:  # a concurrent row of any stream, or a lost answer: check again
            time.sleep(random.uniform(0, _LONGEST_WAIT))  # noqa: S311 - no secret
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
