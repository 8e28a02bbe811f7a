"""What verify found, for people and for programs."""

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TextIO

from lakeproof.streams import printable
from reader.output import console, print_counts
from reader.verify.gold.report import gold_as_json, print_gold
from reader.verify.receipts.report import print_receipts, receipts_as_json
from reader.verify.silver.report import print_silver, silver_as_json

if TYPE_CHECKING:
    from rich.text import Text

    from reader.verify.findings import Finding
    from reader.verify.run import Verification

_NAMED = 20


class ReportFormat(StrEnum):
    """How the report is written."""

    TABLE = "table"
    JSON = "json"


def write_report(verifications: Sequence["Verification"], report_format: ReportFormat, out: TextIO) -> None:
    """Write what was found: as one JSON object that names every source which is not ok, or as tables for people."""
    if report_format is ReportFormat.JSON:
        json.dump(_as_json(verifications), out, ensure_ascii=False, indent=1)
        out.write("\n")
    else:
        _print(verifications)


def _as_json(verifications: Sequence["Verification"]) -> dict[str, Any]:
    from reader.verify.findings import Status

    return {
        "clean": all(verification.clean for verification in verifications),
        "complete": all(verification.complete for verification in verifications),
        "streams": [
            {
                "stream": found.stream,
                "landed_units": found.landed_units,
                "bronze_rows": found.bronze_rows,
                "dead_letters": found.dead_letters,
                "sampled_rows": found.sampled_rows,
                "problems": found.problems,
                "hidden_files": found.hidden,
                "counts": {status.value: count for status, count in found.counts().items()},
                "sources": [
                    {"source": finding.source, "status": finding.status.value, "details": finding.details}
                    for finding in found.findings
                    if finding.status is not Status.OK
                ],
                "resent": found.resent,
                "silver": silver_as_json(found.silver) if found.silver else None,
                "gold": gold_as_json(found.gold),
                "receipts": receipts_as_json(found.receipts) if found.receipts else None,
            }
            for found in verifications
        ],
    }


def _print(verifications: Sequence["Verification"]) -> None:
    from rich.table import Table
    from rich.text import Text

    from reader.verify.findings import Status

    out = console()
    summary = Table("stream", title="Recounted sources")
    for status in Status:
        summary.add_column(status, justify="right")
    for heading in ("landed units", "in bronze", "dead letters"):
        summary.add_column(heading, justify="right")
    for found in verifications:
        numbers = (*found.counts().values(), found.landed_units, found.bronze_rows, found.dead_letters)
        summary.add_row(found.stream, *(f"{number:,}" for number in numbers))
    print_counts(out, summary)
    for found in verifications:
        if found.sampled_rows:
            out.print(f"{found.stream}: compared the values of {found.sampled_rows:,} bronze rows.")
        if found.resent:
            out.print(printable(_resent(found)), markup=False, soft_wrap=True, highlight=False)
        if found.hidden:
            out.print(
                f"{found.stream}: ignored {_count(found.hidden, 'file', 'files')} with hidden names (such as _SUCCESS)."
            )
        if found.off:
            _print_off(found.off, f"{found.stream}: sources with problems")
        for problem in found.problems:
            out.print(Text(printable(f"{found.stream}: {problem}"), "red"), soft_wrap=True)
    print_silver({found.stream: found.silver for found in verifications if found.silver})
    print_gold({found.stream: found.gold for found in verifications if found.gold})
    print_receipts({found.stream: found.receipts for found in verifications if found.receipts})
    out.print(_verdict(verifications))


def _verdict(verifications: Sequence["Verification"]) -> "Text":
    from rich.text import Text

    from reader.verify.findings import Status
    from reader.verify.receipts.findings import Outcome

    silver = [found.silver for found in verifications if found.silver]
    gold = [each for found in verifications for each in found.gold]
    wrong = []
    if not all(found.accounted for found in verifications):
        wrong.append("some units are lost, doubled or changed")
    if not all(each.clean for each in silver):
        wrong.append("silver is not what bronze makes it")
    if not all(each.clean for each in gold):
        wrong.append("gold is not what silver makes it")
    receipts = [found.receipts for found in verifications if found.receipts]
    if not all(each.clean for each in receipts):
        wrong.append("receipts are not kept")
    if wrong:
        return Text(f"Not clean: {', and '.join(wrong)} (see above).", "red")
    pending = [each for found in verifications for each in found.findings if each.status is Status.PENDING]
    partitions = [each for each in pending if each.waiting]
    files = len(pending) - len(partitions)
    undecided = sum(each.undecided for each in silver)
    behind = [each for each in gold if each.behind and each.exists]
    waiting = sum(each.waiting for each in receipts)
    if not all(found.complete for found in verifications):
        text = "Nothing is lost or doubled so far."
        if files:
            text += f" {_are(files, 'file', 'files')} not consumed yet."
        if partitions:
            of = f"of {_count(len(partitions), 'partition', 'partitions')}"
            offsets = sum(each.waiting for each in partitions)
            text += f" {_are(offsets, f'offset {of}', f'offsets {of}')} not consumed yet."
        if undecided:
            text += f" {_are(undecided, 'row of bronze', 'rows of bronze')} not decided in silver yet."
        for each in behind:
            text += f" gold.{each.product} is behind by {_count(each.behind, 'row', 'rows')} of silver."
        for found in verifications:
            absent = [f"silver.{found.stream}"] * bool(found.silver and not found.silver.exists)
            absent += [f"gold.{each.product}" for each in found.gold if not each.exists]
            if absent:
                text += f" {', '.join(absent)} {'does' if len(absent) == 1 else 'do'} not exist yet: "
                text += f"`consumer run {found.stream}` fills {'it' if len(absent) == 1 else 'them'}."
        if waiting:
            text += f" {_are(waiting, 'receipt', 'receipts')} not in silver yet."
        return Text(text, "yellow")
    clean = "Clean: each landed unit is in exactly one table, once."
    if silver:
        clean += " Each row of bronze has its verdict in silver."
    if gold:
        clean += " Each window of gold agrees with silver."
    if receipts:
        clean += " Each receipt is in one table, once."
    conflicts = sum(each.outcomes[Outcome.CONFLICT] for each in receipts)
    if conflicts:
        clean += (
            f" But {_are(conflicts, 'event with a receipt', 'events with receipts')} not in silver: it has another "
        )
        clean += "event with the same key. Send a post again with the same events in the same order."
    return Text(clean, "yellow" if conflicts else "green")


def _are(count: int, one: str, several: str) -> str:
    return f"{_count(count, one, several)} {'is' if count == 1 else 'are'}"


def _count(count: int, one: str, several: str) -> str:
    return f"1 {one}" if count == 1 else f"{count:,} {several}"


def _print_off(off: Sequence["Finding"], title: str) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("source", "status", "details", title=f"{title}: {len(off):,}")
    table.columns[0].overflow = table.columns[2].overflow = "fold"
    for finding in off[:_NAMED]:
        table.add_row(Text(printable(finding.source)), finding.status, Text(printable("\n".join(finding.details))))
    out = console()
    out.print(table)
    if len(off) > _NAMED:
        out.print(f"and {len(off) - _NAMED:,} more; use --format json to list all")


def _resent(found: "Verification") -> str:
    copies = sum(len(names) - 1 for names in found.resent)
    first = " = ".join(found.resent[0][:2])
    are = f"{_are(copies, 'file', 'files')} {'a copy' if copies == 1 else 'copies'}"
    return f"{found.stream}: {are} of another file, with the same bytes: {first}" + (", …" if copies > 1 else "")
