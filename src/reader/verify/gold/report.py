"""What verify found in tables of gold, for people and for programs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakeproof.streams import printable
from reader.output import console, print_counts
from reader.verify.table_report import findings_as_json, findings_table

if TYPE_CHECKING:
    from reader.verify.gold.findings import ProductVerification


def gold_as_json(gold: Sequence["ProductVerification"]) -> list[dict[str, Any]]:
    """What was found, as JSON."""
    return [
        {
            "product": found.product,
            "exists": found.exists,
            "windows": found.windows,
            "behind": found.behind,
            "problems": found.problems,
            "findings": findings_as_json(found.findings),
        }
        for found in gold
    ]


def print_gold(gold: Mapping[str, Sequence["ProductVerification"]]) -> None:
    """Print what was found, by stream; nothing where no stream has gold."""
    from rich.table import Table
    from rich.text import Text

    if not any(gold.values()):
        return
    out = console()
    summary = Table("stream", "product", title="Recomputed windows")
    for heading in ("windows", "behind by rows of silver"):
        summary.add_column(heading, justify="right")
    for stream, products in gold.items():
        for found in products:
            summary.add_row(stream, found.product, f"{found.windows:,}", f"{found.behind:,}")
    print_counts(out, summary)
    for stream, products in gold.items():
        findings = [finding for found in products for finding in found.findings]
        if findings:
            out.print(findings_table(findings, f"{stream}: tables of gold with problems"))
        for problem in (problem for found in products for problem in found.problems):
            out.print(Text(printable(f"{stream}: {problem}"), "red"), soft_wrap=True)
