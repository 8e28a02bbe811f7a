"""Findings in tables, for people and for programs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakeproof.streams import printable

if TYPE_CHECKING:
    from rich.table import Table

    from reader.verify.tables import TableFinding


def findings_as_json(findings: Sequence["TableFinding"]) -> list[dict[str, Any]]:
    """Findings, as JSON."""
    return [
        {"table": finding.table, "finding": finding.what, "rows": finding.rows, "examples": finding.examples}
        for finding in findings
    ]


def findings_table(findings: Sequence["TableFinding"], title: str) -> "Table":
    """Findings as a table for people."""
    from rich.table import Table
    from rich.text import Text

    table = Table("table", "finding", "rows", "examples", title=title)
    table.columns[2].justify = "right"
    table.columns[3].overflow = "fold"
    for finding in findings:
        more = ["…"] * (finding.rows > len(finding.examples))
        table.add_row(
            finding.table, finding.what, f"{finding.rows:,}", Text(printable("\n".join([*finding.examples, *more])))
        )
    return table
