"""A forecast as tables for people, and as JSON."""

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from lakeproof.standard_streams import printable
from lakeproof.whatif.forecast import Counts, Effect, Example, Forecast, Move
from lakeproof.wording import count_of

if TYPE_CHECKING:
    from rich.console import Console

_WORDS = {
    Effect.TO_DEAD_LETTERS: "bronze → dead letters",
    Effect.TO_BRONZE: "dead letters → bronze",
    Effect.SPLIT: "batches → split",
    Effect.OTHER_REASONS: "other reasons",
    Effect.STAYS: "stay dead letters",
    Effect.NOT_JUDGED: "not judged",
}
_LONGEST = 100


def show(found: Forecast, console: "Console") -> None:
    """Print a forecast."""

    def say(text: str) -> None:
        console.print(escape(printable(text)), highlight=False)

    for line in scope(found):
        say(line)
    columns, rows = changes(found)
    if rows:
        table = Table(*columns, box=None, pad_edge=False)
        for cells in rows:
            table.add_row(*(escape(printable(cell)) for cell in cells))
        console.print(table)
    for line in _of_batches(found):
        say(line)
    if len(days := found.days()) > 1 and any(change is not Effect.STAYS for each in days.values() for change in each):
        console.print(_days(found))
    for line in _summary(found):
        say(line)


def changes(found: Forecast) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows of a table of changes, which includes dead letters that would not change."""
    columns = ["change", "reasons", "units", *(["≈"] if found.sampled else []), "example"]
    rows = []
    for counts, move, tally in _moves(found):
        example = _example(tally.examples[0]) if tally.examples else ""
        scaled = [f"{counts.scaled(tally.units):,}"] if found.sampled else []
        rows.append([_WORDS[move[0]], _reasons(move), f"{tally.units:,}", *scaled, example])
    return columns, rows


def conclusion(found: Forecast) -> list[str]:
    """Return the conclusions of a forecast in sentences."""
    return [*_of_batches(found), *_summary(found)]


def _of_batches(found: Forecast) -> Iterator[str]:
    if found.dead_letters.split_units:
        units = dict(found.dead_letters.split_units)
        good = units.pop("", 0)
        bad = f", {count_of(sum(units.values()), 'dead letter')} ({_listed(units)})" if units else ""
        yield f"The batches would be split into {count_of(good, 'row')} of bronze{bad}."


def as_json(found: Forecast) -> str:
    """Return a forecast as a JSON object."""
    units = dict(found.dead_letters.split_units)
    whole = {
        "stream": found.contract.stream,
        "version": found.contract.version,
        "bronze": _counts(found.bronze),
        "dead_letters": _counts(found.dead_letters),
        "changes": [
            {
                "change": change,
                "reasons": old or None,
                "new_reasons": new or None,
                "units": tally.units,
                "scaled": counts.scaled(tally.units),
                "examples": [vars(example) for example in tally.examples],
            }
            for counts, (change, old, new), tally in _moves(found)
        ],
        "split": {"bronze": units.pop("", 0), "dead_letters": units},
        "days": [
            {"day": None if day is None else day.isoformat()} | {change: each[change] for change in Effect}
            for day, each in found.days().items()
        ],
        "unseen": list(found.unseen),
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _moves(found: Forecast) -> Iterator[tuple[Counts, Move, Any]]:
    """Yield moves of units, the largest of each change first, without the rows that stay in bronze."""
    both = (
        (counts, move, tally) for counts in (found.bronze, found.dead_letters) for move, tally in counts.moves.items()
    )
    order = list(_WORDS)
    told = (each for each in both if each[1] != (Effect.STAYS, "", ""))
    yield from sorted(told, key=lambda each: (order.index(each[1][0]), -each[2].units, each[1]))


def _counts(counts: Counts) -> dict[str, Any]:
    return {"rows": counts.rows, "sampled": counts.sampled, "judged": counts.judged}


def scope(found: Forecast) -> Iterator[str]:
    """Yield sentences about the judged units."""
    words = []
    for counts, one in ((found.bronze, "row of bronze"), (found.dead_letters, "open dead letter")):
        several = one.replace("row", "rows").replace("letter", "letters")
        whole = f" (a sample of {counts.rows:,})" if counts.sampled else ""
        words.append(f"{count_of(counts.judged, one, several)}{whole}")
    yield f"{found.contract.stream}: {' and '.join(words)} judged by {found.contract.version}."
    if found.sampled:
        yield "The sample is evenly spaced, and the same as long as the tables are. ≈ is the count scaled to the table."


def _reasons(move: Move) -> str:
    change, old, new = move
    return f"{old} → {new}" if change is Effect.OTHER_REASONS else new if change is Effect.TO_DEAD_LETTERS else old


def _example(example: Example) -> str:
    text = f"{example.source} [{example.position}] {example.path} {example.detail}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _listed(units: dict[str, int]) -> str:
    return ", ".join(f"{reasons} {count:,}" for reasons, count in sorted(units.items()))


def _days(found: Forecast) -> Table:
    days = found.days()
    shown = [change for change in Effect if change is not Effect.STAYS and any(each[change] for each in days.values())]
    table = Table("landed on (UTC)", "units", *(_WORDS[change] for change in shown), box=None, pad_edge=False)
    for day, each in days.items():
        counts = [sum(each.values()), *(each[change] for change in shown)]
        table.add_row("unknown" if day is None else day.isoformat(), *(f"{count:,}" for count in counts))
    return table


def _summary(found: Forecast) -> Iterator[str]:
    yield from (f"Not seen: {text}." for text in found.unseen)
    if not found.bronze.judged and not found.dead_letters.judged:
        yield f"Nothing has landed of {found.contract.stream}."
        return
    bad, good = found.bronze.units(Effect.TO_DEAD_LETTERS), found.dead_letters.units(Effect.TO_BRONZE)
    good += found.dead_letters.units(Effect.SPLIT)
    if bad:
        yield (
            f"{count_of(bad, 'row')} of bronze would be {'a dead letter' if bad == 1 else 'dead letters'}. What is in "
            "bronze stays there: an applied contract judges new records only."
        )
    if good:
        yield (
            f"{count_of(good, 'dead letter')} would go to bronze: apply the contract, then run "
            f"`consumer replay {found.contract.stream}`."
        )
    if not bad and not good:
        yield "Nothing would change sides."


def write(found: Forecast, console: "Console", *, json_wanted: bool) -> None:
    """Print a forecast in one of its formats."""
    if json_wanted:
        sys.stdout.write(as_json(found))
    else:
        show(found, console)
