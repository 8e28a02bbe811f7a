"""What verify found in silver tables, for people and for programs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakeproof.streams import printable
from reader.output import console, print_counts
from reader.verify.table_report import findings_as_json, findings_table

if TYPE_CHECKING:
    from reader.verify.silver.findings import SilverVerification


def silver_as_json(silver: "SilverVerification") -> dict[str, Any]:
    """What was found, as JSON."""
    return {
        "verdicts": {verdict.value: rows for verdict, rows in silver.verdicts.items()},
        "exists": silver.exists,
        "undecided": silver.undecided,
        "problems": silver.problems,
        "findings": findings_as_json(silver.findings),
    }


def print_silver(silver: Mapping[str, "SilverVerification"]) -> None:
    """Print what was found, by stream; nothing where no stream has silver."""
    from rich.table import Table
    from rich.text import Text

    from reader.verify.silver.claims import Verdict

    if not silver:
        return
    out = console()
    summary = Table("stream", title="Recomputed verdicts")
    for heading in (*Verdict, "not decided"):
        summary.add_column(heading, justify="right")
    for stream, found in silver.items():
        numbers = (*(found.verdicts[verdict] for verdict in Verdict), found.undecided)
        summary.add_row(stream, *(f"{number:,}" for number in numbers))
    print_counts(out, summary)
    for stream, found in silver.items():
        if found.findings:
            out.print(findings_table(found.findings, f"{stream}: silver tables with problems"))
        for problem in found.problems:
            out.print(Text(printable(f"{stream}: {problem}"), "red"), soft_wrap=True)
