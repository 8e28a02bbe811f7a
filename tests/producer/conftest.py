"""Fixtures of the producer's tests: run it, and recount its output with independent code."""

import json
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from lakeproof.contracts import Contract, load_contract
from producer.cli import app

CONTRACTS = Path(__file__).parents[2] / "contracts"

_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_TEXTS = ("user_id", "event_id", "event_type", "product_id")
_REQUIRED = ("user_id", "event_id", "event_timestamp", "event_type")

Produce = Callable[..., Result]


@pytest.fixture(scope="session")
def contract() -> Contract:
    return load_contract(CONTRACTS, "events")


@pytest.fixture
def produce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Produce:
    """Run ``producer events`` in this process, in a folder without ``.env``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKE_CONTRACTS", str(CONTRACTS))

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(app, ["events", *map(str, arguments)])

    return run


@pytest.fixture(scope="session")
def reasons() -> Callable[[Any], list[str]]:
    """Judge a parsed record by the rules of the issue."""
    return _reasons


@pytest.fixture(scope="session")
def recount() -> Callable[[list[bytes]], dict[str, Any]]:
    """Count landed units from their bytes alone: the ``expected`` part of a report."""

    def count(batches: list[bytes]) -> dict[str, Any]:
        bronze, dead = 0, Counter[str]()
        for batch in batches:
            try:
                records = [json.loads(line) for line in batch.splitlines()] if batch[:1] == b"{" else json.loads(batch)
            except ValueError:
                dead["corrupt_batch"] += 1
                continue
            for record in records:
                if found := _reasons(record):
                    dead["+".join(found)] += 1
                else:
                    bronze += 1
        return {"bronze": bronze, "dead_letters": dict(dead)}

    return count


def _reasons(record: Any) -> list[str]:
    found = {"unknown_field"} if set(record) - {*_TEXTS, "event_timestamp", "amount", "properties"} else set[str]()
    for name in _REQUIRED:
        if name not in record:
            found.add("missing_field")
        elif record[name] is None:
            found.add("null_field")
    for name in (*_TEXTS, "event_timestamp"):
        if not isinstance(record.get(name), str | None):
            found.add("wrong_type")
    amount = record.get("amount")
    if isinstance(amount, bool) or not isinstance(amount, int | float | Decimal | None):
        found.add("wrong_type")
    when = record.get("event_timestamp")
    if isinstance(when, str) and not _is_timestamp(when):
        found.add("wrong_format")
    properties = record.get("properties", {})
    if not isinstance(properties, dict) or any(isinstance(value, dict | list) for value in properties.values()):
        found.add("wrong_type")
    return sorted(found)


def _is_timestamp(text: str) -> bool:
    try:
        return bool(_TIMESTAMP.fullmatch(text)) and datetime.fromisoformat(text).astimezone(UTC) is not None
    except ValueError:
        return False
