"""What verify found of receipts, for people and for programs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reader.output import console
from reader.verify.table_report import findings_as_json, findings_table

if TYPE_CHECKING:
    from reader.verify.receipts.findings import ReceiptsVerification


def receipts_as_json(found: "ReceiptsVerification") -> dict[str, Any]:
    """What was found, as JSON."""
    return {
        "receipts": found.receipts,
        "outcomes": {outcome.value: count for outcome, count in found.outcomes.items()},
        "findings": findings_as_json(found.findings),
        "conflicts": list(found.conflicts),
    }


def print_receipts(receipts: Mapping[str, "ReceiptsVerification"]) -> None:
    """Print what was found, by stream; nothing where no receipts were checked."""
    from rich.table import Table
    from rich.text import Text

    from reader.verify.receipts.findings import Outcome

    if not receipts:
        return
    out = console()
    summary = Table("stream", "outcome", "receipts", title="Receipts")
    summary.columns[2].justify = "right"
    for stream, found in receipts.items():
        for outcome, count in found.outcomes.items():
            if count:
                summary.add_row(stream, outcome, f"{count:,}")
    out.print(summary)
    for stream, found in receipts.items():
        if found.conflicts:
            count = found.outcomes[Outcome.CONFLICT]
            more = ", …" * (count > len(found.conflicts))
            text = f"{stream}: silver has another event with the same key as {', '.join(found.conflicts)}{more}"
            out.print(Text(text, "yellow"), soft_wrap=True)
        if found.findings:
            out.print(findings_table(found.findings, f"{stream}: receipts with problems"))
