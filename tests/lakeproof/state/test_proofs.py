"""The book of proofs: its contents after proofs that succeed, fail, or run at the same time."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest
from tests.selection import first_by_default
from tests.servers import PostgresServer

from lakeproof.state import proofs
from lakeproof.state.database import open_database, transaction
from lakeproof.state.proofs import (
    Proof,
    ProofKind,
    ProofOutcome,
    ProvenFile,
    last_clean,
    last_proofs,
    proofs_of,
    record,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(params=first_by_default(["sqlite", "postgres"]))
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.new_database()
    return f"sqlite:///{tmp_path / 'state.db'}"


def proof(stream: str = "events", outcome: ProofOutcome = ProofOutcome.CLEAN, since: int | None = None) -> Proof:
    kind = ProofKind.ALL if since is None else ProofKind.NEW
    faults = 0 if outcome is ProofOutcome.CLEAN else 2
    return Proof(stream, kind, NOON, NOON, "me@here", outcome, faults, since, 0, {"duckdb": "1"}, {"bronze": 3})


def file(name: str, rows: int = 1, tag: str = "t") -> ProvenFile:
    return ProvenFile("bronze.events", f"file:///{name}.parquet", tag, rows, -(2**63) + rows)


def test_the_newest_proof_of_each_stream_is_the_last(database: str) -> None:
    assert last_proofs(database) == []
    engine = open_database(database)
    assert [record(engine, proof(), []), record(engine, proof(since=1), []), record(engine, proof("other"), [])] == [
        1,
        2,
        1,
    ]
    assert [(each.stream, each.number, each.kind, each.since) for each in last_proofs(database)] == [
        ("events", 2, ProofKind.NEW, 1),
        ("other", 1, ProofKind.ALL, None),
    ]
    (last, _) = last_proofs(database)
    assert (last.proven_at, last.proven_by, last.versions, last.reached) == (
        NOON,
        "me@here",
        {"duckdb": "1"},
        {"bronze": 3},
    )
    with transaction(engine) as connection:
        assert [each.number for each in proofs_of(connection, "events")] == [2, 1]
        assert len(proofs_of(connection)) == 3


def test_a_proof_that_failed_leaves_the_files_of_the_last_clean_one(database: str) -> None:
    engine = open_database(database)
    record(engine, proof(), [file("a"), file("b")])
    record(engine, proof(outcome=ProofOutcome.FAILED), [file("c")])
    with transaction(engine) as connection:
        found = last_clean(connection, "events")
    assert found
    clean, files = found
    assert (clean.number, sorted(files, key=str)) == (1, [file("a"), file("b")])
    assert [(each.number, each.outcome, each.faults) for each in last_proofs(database)] == [(2, ProofOutcome.FAILED, 2)]


def test_files_are_replaced_as_a_whole(database: str) -> None:
    engine = open_database(database)
    record(engine, proof(), [file("a"), file("b"), file("c")])
    record(engine, proof("other"), [file("a")])
    kept = [file("a"), file("b", rows=2), file("d", tag="u")]
    record(engine, proof(since=1), kept)
    with transaction(engine) as connection:
        found, other = last_clean(connection, "events"), last_clean(connection, "other")
    assert found
    assert other
    assert (sorted(found[1], key=str), other[1]) == (kept, [file("a")])


def test_two_proofs_at_once_are_both_in_the_book(database: str) -> None:
    engine = open_database(database)
    writers = [Thread(target=record, args=(engine, proof(), [file(name)])) for name in "abcd"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    with transaction(engine) as connection:
        found = last_clean(connection, "events")
        assert [each.number for each in proofs_of(connection)] == [4, 3, 2, 1]
    assert found
    assert len(found[1]) == 1  # from one proof, not from several


def test_old_proofs_go_but_not_the_last_clean_one(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "_KEPT_PROOFS", 3)
    engine = open_database(database)
    for outcome in [ProofOutcome.CLEAN, ProofOutcome.CLEAN, *[ProofOutcome.FAILED] * 5]:
        record(engine, proof(outcome=outcome), [])
    with transaction(engine) as connection:
        assert [each.number for each in proofs_of(connection)] == [7, 6, 5, 2]


def test_the_digest_is_of_what_was_proven() -> None:
    assert proof().digest == proof().digest
    assert (
        len({proof().digest, proof("other").digest, proof(outcome=ProofOutcome.FAILED).digest, proof(since=1).digest})
        == 4
    )


def test_the_newest_proof_of_a_stream_has_the_highest_number_though_the_clock_was_set_back(database: str) -> None:
    engine = open_database(database)
    record(engine, replace(proof(), proven_at=NOON + timedelta(hours=3)), [])
    record(engine, proof(outcome=ProofOutcome.FAILED), [])
    with transaction(engine) as connection:
        assert [each.number for each in proofs_of(connection, "events")] == [2, 1]
        assert [each.number for each in proofs_of(connection, "events", most=1)] == [2]
