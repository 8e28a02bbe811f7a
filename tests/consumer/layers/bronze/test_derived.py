"""Derived columns of bronze, from records and the headers of their messages."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from consumer.layers.bronze.derived import derived_columns
from consumer.layers.bronze.ledger import MicroBatch
from consumer.layers.bronze.rows import Origins, bronze_rows
from consumer.sources.envelope import Headers, Messages
from lakeproof.contracts import Contract, Field, ObjectType, PrimitiveType, load_contract
from lakeproof.judge.batch import Judge
from lakeproof.kafka.correlation import correlation_id

CONTRACT = load_contract(Path(__file__).parents[4] / "contracts", "clickstream")
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def rows(headers: list[Headers | None], contract: Contract = CONTRACT, **changes: Any) -> list[dict[str, Any]]:
    """Return rows of bronze for one message with each of the headers; ids count from 0."""
    event = {"type": "page_view", "event": {"timestamp": "2026-11-22T00:00:00Z", "page": "/"}}
    values = [json.dumps({"id": number} | event | changes).encode() for number in range(len(headers))]
    messages = Messages("t/0/0", "t/0/", range(len(values)), [0] * len(values), values, [None] * len(values), headers)
    origins = Origins.of_messages(messages)
    (found,) = Judge(contract).judge_together(values)
    assert len(found.judged.good) == len(values)
    batch = MicroBatch(3, "checkpoint", contract, NOW)
    columns = origins.columns_of(found.good_of, len(values))
    return bronze_rows(found.judged.good, columns, batch).to_pylist()


def test_the_correlation_id_is_of_the_headers_else_of_the_id() -> None:
    key, index, client = ("idempotency-key", b"k"), ("idempotency-index", b"5"), ("client", b"shop")
    cases: list[tuple[Headers | None, tuple[bytes | None, bytes | None, bytes | None]]] = [
        (None, (None, None, None)),
        ([], (None, None, None)),
        ([key, index], (None, b"k", b"5")),
        ([("other", b"x"), index, client, key], (b"shop", b"k", b"5")),
        ([client], (b"shop", None, None)),
        ([key], (None, b"k", None)),
        ([key, index, ("idempotency-key", b"later")], (None, b"k", b"5")),
        ([("client", None), key, index], (None, b"k", b"5")),
        ([("idempotency-key", b"\xff"), index], (None, b"\xff", b"5")),
    ]
    found = [row["correlation_id"] for row in rows([headers for headers, _ in cases])]
    assert found == [correlation_id(*told, b"%d" % number) for number, (_, told) in enumerate(cases)]


def test_the_ingestion_timestamp_is_that_of_the_micro_batch() -> None:
    (row,) = rows([None])
    assert row["ingestion_timestamp"] == row["_ingested_at"] == NOW


@pytest.mark.parametrize("schema_id", [None, 7])
def test_the_schema_id_is_that_of_the_micro_batch(schema_id: int | None) -> None:
    (judged,) = Judge(CONTRACT).judge(b'[{"id":1,"type":"x","event":{"timestamp":"2026-11-22T00:00:00Z","page":"/"}}]')
    found = derived_columns(judged.good.values, {}, MicroBatch(0, "c", CONTRACT, NOW, schema_id))
    assert found["schema_id"].to_pylist() == [schema_id]


def test_a_record_of_a_file_has_them_too() -> None:
    (judged,) = Judge(CONTRACT).judge(b'[{"id":-7,"type":"x","event":{"timestamp":"2026-11-22T00:00:00Z","page":"/"}}]')
    found = derived_columns(judged.good.values, {}, MicroBatch(0, "c", CONTRACT, NOW))
    assert found["correlation_id"].to_pylist() == [correlation_id(None, None, None, b"-7")]


@pytest.mark.parametrize("kind", [PrimitiveType.STRING, PrimitiveType.INT])
def test_the_id_may_have_another_type(kind: PrimitiveType) -> None:
    fields = tuple(replace(field, type=kind) if field.name == "id" else field for field in CONTRACT)
    value: Any = "ü1" if kind is PrimitiveType.STRING else 1
    (row,) = rows([None], replace(CONTRACT, fields=fields), id=value)
    assert row["correlation_id"] == correlation_id(None, None, None, str(value).encode())


def test_nothing_is_derived_without_such_fields() -> None:
    contract = replace(CONTRACT, fields=CONTRACT.live)
    assert derived_columns(None, {}, MicroBatch(0, "c", contract, NOW)) == {}  # type: ignore[arg-type]  # not looked at
    assert not any(isinstance(field, Field) and field.derived for field in contract)
    assert isinstance(contract.fields[2].type, ObjectType)
