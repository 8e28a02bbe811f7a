"""The most frequent sets of reasons of dead letters, each with an example."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lakeproof.catalog import quoted
from lakeproof.judge.batch import Judge
from lakeproof.tables.names import MICRO_BATCH_ID, POSITION, RAW, REASONS, SOURCE
from reader.connect import Session
from reader.dead_letters.places import excerpt, find_place
from reader.page import ledgers
from reader.page.model import Reasons
from reader.page.outlook import after_replay
from reader.verify.tables.accounts import CODES

MOST = 12
"""Number of sets to show."""
_EXAMPLES = 8  # of the first sets
_EXAMPLE_BYTES = 1 << 20
_SMALL_BYTES, _SCANNED = 16_384, 500  # maximum size and number of dead letters in the first scan of a micro-batch
_EXCERPT = 240  # characters


def most_frequent(session: Session, found: Mapping[str, int]) -> list[Reasons]:
    """Return the most frequent sets of reasons with their trends; `found` has the numbers of letters, most first."""
    most = dict(list(found.items())[:MOST])
    hours = ledgers.trends(session, list(most))
    return [Reasons(codes, letters, hours[codes]) for codes, letters in most.items()]


def with_examples(session: Session, table: str, judge: Callable[[], Judge], shown: Sequence[Reasons]) -> list[Reasons]:
    """Return the first sets with an example from the table of dead letters; `judge` judges it again."""
    examples = _found(session, table, [each.codes for each in shown[:_EXAMPLES]])
    return [_with_example(each, examples[each.codes], judge) if each.codes in examples else each for each in shown]


def _found(session: Session, table: str, codes: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Return a dead letter of each set of reasons."""
    # The ledger has the micro-batch of each set, so only a few files are read. Most lakes have all sets in a few
    # micro-batches: each gets one scan, which ends early. Sets that this scan misses, which are rare or large, get
    # their own scan.
    places = ledgers.newest_place(session, codes)
    together: dict[int, list[str]] = {}
    for each, (number, _) in places.items():
        together.setdefault(number, []).append(each)
    few = f"octet_length({RAW}) < {_SMALL_BYTES} LIMIT {_SCANNED}"
    examples = _examples(
        session,
        table,
        [
            f"(SELECT * FROM ({{}} WHERE {MICRO_BATCH_ID} = {number} AND {_among(sets)} AND {few}) "
            "QUALIFY row_number() OVER (PARTITION BY codes) = 1)"
            for number, sets in together.items()
        ],
    )
    rest = {each: number for each, (number, _) in places.items() if each not in examples}
    selects = [
        f"({{}} WHERE {MICRO_BATCH_ID} = {number} AND {_among([each])} LIMIT 1)" for each, number in rest.items()
    ]
    return examples | _examples(session, table, selects)


def _examples(session: Session, table: str, selects: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Return dead letters by set of reasons; ``{}`` in `selects` is replaced by the SELECT and FROM clauses."""
    row = (
        f"SELECT {CODES} AS codes, {REASONS} AS reasons, {RAW}[1:{_EXAMPLE_BYTES}] AS raw, octet_length({RAW}), "
        f"{SOURCE}, {POSITION} FROM {table}"
    )
    found = session.fetch(" UNION ALL ".join(each.replace("{}", row, 1) for each in selects)) if selects else []
    return {codes: rest for codes, *rest in found}


def _among(sets: Sequence[str]) -> str:
    """Return SQL that is true if a dead letter has one of these sets of reasons."""
    return f"{CODES} IN ({', '.join(map(quoted, sets))})"


def _with_example(reasons: Reasons, example: Sequence[Any], judge: Callable[[], Judge]) -> Reasons:
    given, raw, size, source, position = example
    first = given[0] if given else {}
    path, detail = first.get("path") or "", first.get("detail") or ""
    part = None if raw is None else excerpt(raw, find_place(raw, path, detail), _EXCERPT)
    return replace(
        reasons,
        detail=detail,
        path=path,
        source=source or "",
        position=position,
        size=size,
        excerpt=part,
        after_replay=after_replay(judge(), reasons.codes, raw, size),
    )
