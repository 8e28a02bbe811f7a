"""``reader verify`` has nothing to report after ``consumer replay``, and finds each planted fault."""

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
from tests.lakes import changed, put_back
from tests.messages import send
from tests.servers import KafkaServer

from consumer.layers.bronze.letters import Choice
from consumer.layers.bronze.replay import Replay
from consumer.layers.bronze.transform import read_transform
from lakeproof.catalog import open_catalog
from lakeproof.errors import LakeproofError
from lakeproof.kafka.offsets import source_name
from lakeproof.settings import Settings
from reader.verify.check import Verification
from reader.verify.checks.replays import LEFT_BEHIND, OTHER_REST

pytestmark = pytest.mark.spark

Told = tuple[str, str, str]
"""A fault that verify reports: the table, the fault, and an example."""
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


@pytest.mark.all
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
    for faults in FAULTS:
        with put_back(settings):
            for (table, place), _ in faults:
                remove(settings, table, **place)
            told = findings(verify(settings))
        assert [expected for _, expected in faults if expected not in told] == [], told


def remove(settings: Settings, table: str, **place: object) -> None:
    """Remove rows of a table."""
    found, terms = open_catalog(settings).load_table(table), [EqualTo(name, value) for name, value in place.items()]
    condition = And(*terms) if len(terms) > 1 else terms[0]
    assert len(found.scan(condition).to_arrow())
    found.delete(condition)


def findings(found: Verification) -> set[Told]:
    """Return what is wrong: table, fault and example."""
    results = [result for each in found.results.values() for result in each]
    faults = [fault for result in results for fault in result.faults]
    return {(fault.place, fault.what, text) for fault in faults for text in fault.details or ("",)}


# Rows to remove, each with a fault that verify then reports of them. Those of one list are removed together.
FAULTS: list[list[tuple[tuple[str, dict[str, object]], Told]]] = [
    [
        (  # a replayed row
            ("bronze.orders", {"_source": "1.json", "_position": 1}),
            ("bronze.orders", "closed, but not in bronze", "1.json, position 1"),
        ),
        (  # a salvaged row
            ("bronze.orders", {"_source": "2.json", "_position": 0}),
            ("dead_letters.orders", LEFT_BEHIND, "2.json, position 0"),
        ),
        (  # the rest of a salvaged batch
            ("dead_letters.orders", {"_source": "2.json", "_position": 7}),
            ("dead_letters.orders", OTHER_REST, "2.json, position 7: 67 bytes are in no dead letter"),
        ),
        (  # the attempts of a dead letter
            ("dead_letters.orders_attempts", {"_source": "1.json", "_position": 2}),
            ("bronze.orders", "open or parked, but in bronze", "1.json, position 2: not replayed"),
        ),
    ],
    [
        (  # the ledger's row of a replay
            ("ledger.orders", {"source": "1.json", "replay": 1}),
            (
                "ledger.orders",
                "wrong counts of a replay",
                "1.json, micro-batch 1: no row; the replay was interrupted, or the row was removed",
            ),
        ),
    ],
]


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
    with put_back(settings):
        remove(settings, "bronze.orders", _source=source_name(topic, 0, 1))
        told = findings(verify(settings))
    assert ("bronze.orders", "closed, but not in bronze", f"{source_name(topic, 0, 1)}, position 0") in told
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
