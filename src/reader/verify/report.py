"""Report of verify as tables or JSON, assembled from the results of all checks."""

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TextIO

from lakeproof.errors import OutputError
from lakeproof.standard_streams import printable
from reader.output import console, print_counts

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from reader.verify.check import Result, Section, Verification
from reader.verify.findings import Finding

_NAMED_SOURCES = 20


class ReportFormat(StrEnum):
    """Format of the report."""

    TABLE = "table"
    JSON = "json"


class UnwrittenError(OutputError):
    """The report cannot be written; exit code 1 would say that a source has a problem."""

    exit_code = 2


def write_report(verifications: Sequence["Verification"], report_format: ReportFormat, out: TextIO) -> None:
    """Write the report: one JSON object that lists every source that is not ok, or tables for people."""
    if report_format is ReportFormat.JSON:
        whole = {
            "clean": all(found.clean for found in verifications),
            "complete": all(found.complete for found in verifications),
            "streams": [_stream_as_json(found) for found in verifications],
        }
        json.dump(whole, out, ensure_ascii=False, indent=1)
        out.write("\n")
    else:
        _print(verifications)


def _stream_as_json(found: "Verification") -> dict[str, Any]:
    told: dict[str, Any] = {"stream": found.stream}
    if found.error:
        return told | {"error": found.error.message, "hint": found.error.hint}
    for section, results in found.results.items():
        members = [_as_json(section, result) for result in results]
        if not section.key:
            told |= members[0]
        else:
            told[section.key] = members if section.is_list else members[0] if members else None
    if found.proof and told.get("proof"):
        told["proof"]["number"] = found.proof.number or None
    return told


def _as_json(section: "Section", result: "Result") -> dict[str, Any]:
    told = dict(result.facts)
    if section.has_problems:
        told["problems"] = result.problems
    if section.key:
        told["findings"] = [
            {"table": each.place, "finding": each.what, "rows": each.rows, "examples": each.details}
            for each in result.findings
        ]
    else:
        told["sources"] = [
            {"source": each.place, "status": each.what, "details": each.details} for each in result.findings
        ]
    return told


def _print(verifications: Sequence["Verification"]) -> None:
    from rich.text import Text

    out, checked = console(), [found for found in verifications if not found.error]
    for section in checked[0].results if checked else ():
        _print_section(out, section, {found.stream: found.results[section] for found in checked})
    for found in checked:
        if found.proof and not found.proof.number:
            text = "the proof is not in the book: the state database does not exist, or cannot be used."
            out.print(Text(printable(f"{found.stream}: {text}"), "yellow"), soft_wrap=True)
    if checked:
        out.print(_verdict(checked))
    if names := [found.stream for found in verifications if found.error]:
        out.print(Text(printable(f"Not checked: {', '.join(names)}."), "red"), soft_wrap=True)


def _print_section(out: "Console", section: "Section", found: dict[str, tuple["Result", ...]]) -> None:
    from rich.table import Table
    from rich.text import Text

    if not any(found.values()):
        return
    summary = Table("stream", title=section.title)
    rows = [(stream, *row) for stream, results in found.items() for result in results for row in section.rows(result)]
    for index, heading in enumerate(section.columns, 1):
        is_text = any(isinstance(row[index], str) for row in rows)
        summary.add_column(heading, justify="left" if is_text else "right")
    for row in rows:
        summary.add_row(*(each if isinstance(each, str) else f"{each:,}" for each in row))
    if rows:
        print_counts(out, summary)
    for stream, results in found.items():
        for result in results:
            for texts, style in ((result.remarks, ""), (result.warnings, "yellow")):
                for text in texts:
                    out.print(Text(printable(f"{stream}: {text}"), style), soft_wrap=True)
        if faults := [finding for result in results for finding in result.faults]:
            title = f"{stream}: {section.faults}"
            if section.key:
                out.print(_table_of_rows(faults, title))
            else:
                _print_sources(out, faults, title)
        for problem in (problem for result in results for problem in result.problems):
            out.print(Text(printable(f"{stream}: {problem}"), "red"), soft_wrap=True)


def _table_of_rows(findings: Sequence["Finding"], title: str) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table("table", "finding", "rows", "examples", title=title)
    table.columns[2].justify = "right"
    table.columns[3].overflow = "fold"
    for each in findings:
        more = ["…"] * (each.rows > len(each.details))
        table.add_row(each.place, each.what, f"{each.rows:,}", Text(printable("\n".join([*each.details, *more]))))
    return table


def _print_sources(out: "Console", findings: Sequence["Finding"], title: str) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("source", "status", "details", title=f"{title}: {len(findings):,}")
    table.columns[0].overflow = table.columns[2].overflow = "fold"
    for each in findings[:_NAMED_SOURCES]:
        table.add_row(Text(printable(each.place)), each.what, Text(printable("\n".join(each.details))))
    out.print(table)
    if len(findings) > _NAMED_SOURCES:
        out.print(f"and {len(findings) - _NAMED_SOURCES:,} more; use --format json to list all")


def _verdict(verifications: Sequence["Verification"]) -> "Text":
    """Return the last line: the faults, or else the rows that have not arrived yet, or else what was verified."""
    from rich.text import Text

    found = {
        section: [result for each in verifications for result in each.results[section]]
        for section in verifications[0].results
    }
    if wrong := [section.wrong for section, results in found.items() if not all(each.clean for each in results)]:
        return Text(f"Not clean: {', and '.join(wrong)} (see above).", "red")
    if not all(each.complete for each in verifications):
        pending = [section.pending(results) for section, results in found.items()]
        texts = ["Nothing is lost or doubled so far.", *pending, *map(_missing, verifications)]
        return Text(" ".join(filter(None, texts)), "yellow")
    caveats = [text for section, results in found.items() if (text := section.caveat(results))]
    texts = ["Clean:", *(section.right for section, results in found.items() if results), *caveats]
    return Text(" ".join(texts), "yellow" if caveats else "green")


def _missing(found: "Verification") -> str:
    """Return a text about tables that have not been filled yet; empty if all tables exist."""
    names = [result.missing for results in found.results.values() for result in results if result.missing]
    does, it = ("does", "it") if len(names) == 1 else ("do", "them")
    text = f"{', '.join(names)} {does} not exist yet: `consumer run {found.stream}` fills {it}."
    return text if names else ""
