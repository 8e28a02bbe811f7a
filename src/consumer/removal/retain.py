"""Retention of streams, by their contracts or on demand: landed files, and rows of tables.

:mod:`consumer.removal.retain_files` removes landed files, and :mod:`consumer.removal.retain_rows` rows of tables.
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import timedelta

from pyspark.sql import SparkSession

from consumer.removal.retain_files import NotOursError, Retained, retain
from consumer.removal.retain_rows import lines_of, retain_rows
from lakeproof.contracts import load_contract
from lakeproof.contracts.duration import duration_text
from lakeproof.contracts.model import Removable, Retention
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.settings import Settings
from lakeproof.wording import count_of

_NAMED = {
    Removable.LANDED: "landed files",
    Removable.DEAD_LETTERS: "closed dead letters",
    Removable.CONFLICTS: "conflicts",
    Removable.LATE: "late rows",
}


def retain_all(
    settings: Settings,
    streams: Sequence[str],
    older_than: timedelta | None,
    archive: str | None,
    session: Callable[[], SparkSession],
    *,
    what: Collection[Removable] = (),
    in_source: bool = False,
    dry_run: bool = False,
    is_ending: Callable[[], bool] = lambda: False,
) -> list[Retained]:
    """Apply retention to landed files of streams, and to rows of their tables; without a time, by their contracts.

    By default, `what` is landed files only, or, without a time, everything in the contract's retention. An error is
    the problem of one of several streams: the others are processed. Of a single stream, only an unavailable server, or
    an address that may belong to somebody else, is a result.
    """
    done = []
    retention = {stream: load_contract(settings.contracts, stream).retention for stream in streams}
    all_ages = {stream: _ages(stream, asked, older_than, what) for stream, asked in retention.items()}
    for stream, ages in all_ages.items():
        asked, landed = retention[stream], ages.pop(Removable.LANDED, None)
        where = archive or (asked.archive if asked and not older_than else None)
        mine = Retained(stream, "" if landed is None else duration_text(landed), where)
        try:
            if ages:
                mine.rows = retain_rows(settings, stream, ages, session, dry_run=dry_run, is_ending=is_ending)
            if landed is not None:
                files = retain(
                    settings, stream, landed, where, in_source=in_source, dry_run=dry_run, is_ending=is_ending
                )
                mine = replace(files, rows=mine.rows)
        except LakeproofError as error:
            if len(streams) == 1 and not isinstance(error, UnavailableError | NotOursError):
                raise
            mine.problem, mine.is_unavailable = error.message, error.retryable
        done.append(mine)
    return done


def _ages(
    stream: str, asked: Retention | None, older_than: timedelta | None, what: Collection[Removable]
) -> dict[Removable, timedelta]:
    """Return the minimum age for removal, by what is removed."""
    if older_than is not None:
        return dict.fromkeys(what or [Removable.LANDED], older_than)
    by_contract = {each: age for each in Removable if asked and (age := asked.age_of(each)) is not None}
    ages = {each: age for each, age in by_contract.items() if each in (what or Removable)}
    if lacking := set(what) - ages.keys() or (not ages and {Removable.LANDED}):
        first = min(lacking)
        raise UsageError(
            f"The contract of {stream} does not say how long {_NAMED[first]} are kept.",
            f"Add --older-than, like --older-than 30d, or the custom property retention: "
            f"`{{property: retention, value: {{{first}: 30 days}}}}`.",
        )
    return ages


def streams_with_retention(settings: Settings, streams: Sequence[str] = ()) -> list[str]:
    """Return the streams, of the given ones or of all, whose contracts have a retention."""
    names = streams or settings.streams
    return [name for name in names if load_contract(settings.contracts, name).retention]


def as_json(done: Sequence[Retained]) -> str:
    """Return the results as JSON."""
    return json.dumps([asdict(each) for each in done], indent=2)


def lines(done: Sequence[Retained], *, dry_run: bool) -> Iterator[str]:
    """Yield the results as lines for people."""
    from rich.filesize import decimal

    for each in done:
        if each.problem:
            yield f"{each.stream}: {each.problem}"
        if each.rows:
            yield f"{each.stream}:"
            yield from (f"  {line}" for line in lines_of(each.rows, dry_run=dry_run))
        if each.problem or not each.older_than:
            continue
        said = "would be removed" if dry_run else "removed"
        how = f", {'and would be copied' if dry_run else 'copied'} to {each.archive}" if each.archive else ""
        yield (
            f"{each.stream}: {each.removed:,} of {count_of(each.files, 'landed file')} {said} ({decimal(each.bytes)}), "
            f"older than {each.older_than}{how}."
        )
        for why, count in each.kept.items():
            yield f"  {count_of(count, 'file')} kept: {why}."
    if dry_run:
        yield "Nothing was changed."
