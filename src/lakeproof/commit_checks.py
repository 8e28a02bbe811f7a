"""What is checked before PyIceberg commits: the format of the table, and the clock of this machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from lakeproof.clocks import check_time, now_ms
from lakeproof.errors import UsageError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata


def check_commits(catalog: "Catalog") -> None:
    """Let the client of a catalog refuse commits that the checks of this module refuse, before it writes metadata."""
    client: Any = type(catalog)

    @wraps(client.commit_table)
    def checked(table: "Table", requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> Any:
        times = [update.snapshot.timestamp_ms for update in updates if update.action == "add-snapshot"]
        check = _Check(".".join(table.name()), times)
        if hasattr(catalog, "engine"):  # an SQL catalog reads the table again, and validates the requirements with it
            requirements = (*requirements, check)
        elif times:  # the server of a REST catalog writes the metadata, and sets all other times
            check.check_clock(table.metadata)
        return client.commit_table(catalog, table, requirements, updates)

    vars(catalog)["commit_table"] = checked


def check_format(table: str, version: int) -> None:
    """Raise a UsageError for a table in a version of Iceberg's format that PyIceberg cannot write."""
    from pyiceberg.table.metadata import SUPPORTED_TABLE_FORMAT_VERSION

    if version <= SUPPORTED_TABLE_FORMAT_VERSION:
        return
    raise UsageError(
        f"Cannot change {table}: another tool has upgraded it to format version {version} of Iceberg.",
        "Nothing was changed. Keep the table: only a backup from before the upgrade helps. "
        "See docs/operations/maintenance.md#a-table-was-upgraded.",
    )


@dataclass(frozen=True)
class _Check:
    """A requirement of PyIceberg: it can write the format, and neither new snapshots nor the clock are too early."""

    table: str
    times: Sequence[int]

    def validate(self, metadata: "TableMetadata | None") -> None:
        if metadata:  # otherwise, the commit creates the table
            check_format(self.table, metadata.format_version)
            self.check_clock(metadata)

    def check_clock(self, metadata: "TableMetadata") -> None:
        found = metadata.model_dump(by_alias=True, include={"last_updated_ms", "snapshot_log", "metadata_log"})
        check_time(self.table, found, min([*self.times, now_ms()]))
