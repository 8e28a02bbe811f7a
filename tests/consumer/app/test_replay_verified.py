"""``reader verify`` has nothing to report after ``consumer replay``, and finds each planted fault."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.expressions import And, EqualTo
from tests.consumer.crashes import crash_before
from tests.consumer.lake import SessionOf, rows
from tests.consumer.replays import (
    STREAM,
    WRONG,
    apply,
    batch,
    check_clean,
    drain,
    land,
    order,
    replay,
    verify,
    write_contract,
)
from tests.hashes import check_hashes
from tests.lakes import changed
from tests.messages import send
from tests.servers import KafkaServer

from consumer.layers.bronze.letters import Choice
from consumer.layers.bronze.replay import Replay
from consumer.layers.bronze.transform import read_transform
from lakeproof.catalog import open_catalog
from lakeproof.errors import LakeproofError
from lakeproof.kafka.offsets import source_name
from lakeproof.settings import Settings
from reader.verify.findings import Finding

pytestmark = pytest.mark.spark

TRANSFORM = """\
def transform(raw, letter):
    return raw.replace(b'"kind": "old"', b'"kind": "used"')
"""


@pytest.fixture
def settings(lake_settings: Settings, tmp_path: Path) -> Settings:
    changes = {"LAKE_CONTRACTS": tmp_path / "contracts", "LAKE_GOLD": tmp_path / "gold"}
    settings = changed(lake_settings, **changes)
    write_contract(settings, right=False)
    return settings


def orders(first: int) -> list[bytes]:
    """Return eight orders: six do not meet the wrong contract, and one of these does not meet the right one either."""
    right = [order(first + number, **([{}, *WRONG][number % 4])) for number in range(7)]
    return [*right, order(first + 7, kind="old")]


def replay_twice(settings: Settings, session_of: SessionOf, tmp_path: Path) -> None:
    """Replay with the right contract and `--salvage`, and the rest with a transform."""
    write_contract(settings, right=True)
    apply(settings)
    replay(settings, session_of, Replay(salvage=True))
    path = tmp_path / "fix.py"
    path.write_text(TRANSFORM)
    replay(settings, session_of, Replay(Choice("_position = 7"), transform=read_transform(path)))
    replay(settings, session_of, Replay(max_attempts=1))


def test_replays_of_files(settings: Settings, session_of: SessionOf, tmp_path: Path) -> None:
    old = "2026-09-01T06:00:00Z"  # far behind the horizon by the time of the replay
    land(settings, "1.json", batch(*orders(0), order(50, kind="used", at=old)))
    land(settings, "2.json", batch(*orders(100))[:-10])
    land(settings, "3.json", b"\n".join(orders(200)))
    land(settings, "4.json", b"garbage")
    drain(settings, session_of)
    check_clean(verify(settings))
    replay_twice(settings, session_of, tmp_path)
    land(settings, "5.json", batch(*orders(300)))
    drain(settings, session_of)
    found = verify(settings)
    check_clean(found)
    (facts,) = [result.facts for result in found.of("replays")]
    assert (facts["transformed_records"], facts["closed"]) == (2, 6 + 1 + 5 + 2)
    (silver,) = found.of("silver")
    assert [row["_position"] for row in rows(settings, "silver.orders_late")] == [8]
    assert silver.clean
    for fault, what in FAULTS.items():
        plant, restore = what
        plant(settings)
        assert not verify(settings).clean, fault
        restore(settings)
        check_clean(verify(settings))


Change = Callable[[Settings], None]


def remove(table: str, **place: object) -> tuple[Change, Change]:
    """Return changes that remove rows, and roll back: PyIceberg would not append a null list of objects as it was."""
    kept: list[int] = []
    terms = [EqualTo(name, value) for name, value in place.items()]
    condition = And(*terms) if len(terms) > 1 else terms[0]

    def plant(settings: Settings) -> None:
        found = open_catalog(settings).load_table(table)
        before = found.current_snapshot()
        assert before
        assert len(found.scan(condition).to_arrow())
        kept.append(before.snapshot_id)
        found.delete(condition)

    def restore(settings: Settings) -> None:
        open_catalog(settings).load_table(table).manage_snapshots().set_current_snapshot(kept.pop()).commit()

    return plant, restore


FAULTS = {
    "a replayed row is lost": remove("bronze.orders", _source="1.json", _position=1),
    "a salvaged row is lost": remove("bronze.orders", _source="2.json", _position=0),
    "the rest of a salvaged batch is lost": remove("dead_letters.orders", _source="2.json", _position=7),
    "the attempts of a dead letter are lost": remove(f"dead_letters.{STREAM}_attempts", _source="1.json", _position=1),
    "the ledger's row of a replay is lost": remove("ledger.orders", source="1.json", replay=1),
}


@pytest.mark.all
def test_replays_of_messages(settings: Settings, session_of: SessionOf, kafka: KafkaServer, tmp_path: Path) -> None:
    topic = kafka.new_topic(partitions=2)
    settings = changed(
        settings,
        LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers,
        LAKE_KAFKA_STARTING_OFFSETS="earliest",
        LAKE_KAFKA_TOPIC=topic,
    )
    send(kafka, topic, [*orders(0), batch(*orders(100))[:-10]], key=b"k", headers=[("trace", b"t"), ("trace", None)])
    send(kafka, topic, [batch(*orders(200)), None, b"garbage"], partition=1)
    drain(settings, session_of, "kafka")
    check_clean(verify(settings))
    replay_twice(settings, session_of, tmp_path)
    send(kafka, topic, orders(300))
    drain(settings, session_of, "kafka")
    found = verify(settings)
    check_clean(found)
    (facts,) = [result.facts for result in found.of("replays")]
    assert facts["replays"] == 3
    assert facts["transformed_records"] >= 1
    assert check_hashes(settings, STREAM) > 10
    kafka.delete_records(topic, 0, 9)  # the dead letters have the bytes
    plant, restore = remove("bronze.orders", _source=source_name(topic, 0, 1))
    plant(settings)
    found = verify(settings)
    assert Finding("bronze.orders", "closed, but not in bronze", 1, (f"{source_name(topic, 0, 1)}, position 0",)) in [
        fault for result in found.of("replays") for fault in result.faults
    ]
    restore(settings)
    assert verify(settings).clean


@pytest.mark.all
@pytest.mark.parametrize(
    ("step", "by"),
    [
        ("before bronze", "run"),
        pytest.param("before dead letters", "replay", marks=pytest.mark.long),
        pytest.param("before ledger", "run", marks=pytest.mark.long),
    ],
)
def test_an_interrupted_replay_is_not_clean_until_it_is_finished(
    settings: Settings, session_of: SessionOf, monkeypatch: pytest.MonkeyPatch, step: str, by: str
) -> None:
    land(settings, "1.json", batch(*orders(0)))
    land(settings, "2.json", batch(*orders(100))[:-10])
    drain(settings, session_of)
    write_contract(settings, right=True)
    apply(settings)
    crash_before(monkeypatch)(["before bronze", "before dead letters", "before ledger"].index(step) + 1)
    with pytest.raises(LakeproofError, match="crashed, as asked"):
        replay(settings, session_of, Replay(salvage=True))
    assert not verify(settings).clean
    if by == "replay":
        replay(settings, session_of, Replay(salvage=True))
    drain(settings, session_of)
    check_clean(verify(settings))
    check_hashes(settings, STREAM)
