"""Forecast of a replay, and of the contract in the file on landed data: a sample, judged on request."""

from collections.abc import Mapping, Sequence
from typing import Any

from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.contracts import load_contract
from lakeproof.judge.batch import Judge
from lakeproof.reasons import OF_BATCHES, reason_sets
from lakeproof.settings import Settings
from lakeproof.whatif.forecast import forecast
from lakeproof.whatif.report import changes, conclusion, scope

_SAMPLE = 10_000


def outlook(settings: Settings, stream: str) -> tuple[str, Sequence[Mapping[str, Any]]]:
    """Return a description of the judged sample, and the page parts with the forecast; change nothing."""
    contract = load_contract(settings.contracts, stream)
    with catalog_errors():
        found = forecast(open_catalog(settings), settings, contract, _SAMPLE)
    columns, rows = changes(found)
    said = [[line] for line in conclusion(found)]
    return " ".join(scope(found)), [
        {"title": "What would change", "columns": columns, "rows": rows, "empty": "Nothing."},
        {"title": "What follows", "columns": ["conclusion"], "rows": said, "empty": "Nothing."},
    ]


def after_replay(judge: Judge, codes: str, raw: bytes | None, size: int | None) -> str | None:
    """Return the reasons that a replay would find in a dead letter; empty for a good record, None if unknown."""
    if raw is None or len(raw) != size or not OF_BATCHES.isdisjoint(codes.split("+")):
        return None
    (found,) = judge.judge_units([raw])
    return "" if len(found.good_of) else reason_sets(found.judged.bad.reasons)[0]
