"""A breaker pauses a stream over a topic, and a batch over its past."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.consumer.breakers import apply_contract, write_contract
from tests.consumer.crashes import crash_before
from tests.consumer.lake import rows
from tests.consumer.sources.kafka.test_past import START, landed, minutes, send_at
from tests.consumer.sources.kafka.test_source import units
from tests.consumer.sources.kafka.test_verified import Lake
from tests.lakes import changed
from tests.messages import event, send
from tests.selection import grid
from tests.servers import KafkaServer

from consumer.app import repair
from lakeproof.errors import LakeproofError, PausedError
from lakeproof.settings import Settings
from lakeproof.state.breaker_log import BreakerLog

pytestmark = pytest.mark.spark

Take = Callable[..., None]
PAUSE = "{share: 0.5, units: 4, over: micro-batch, action: pause}"


@pytest.fixture
def contracts(tmp_path: Path) -> Path:
    folder = tmp_path / "contracts"
    write_contract(folder, PAUSE)
    return folder


@pytest.fixture
def verified(kafka: KafkaServer, lake_settings: Settings) -> Callable[[str], object]:
    settings = changed(lake_settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers)
    return lambda topic: Lake(settings, topic).faults()


def teleports(*numbers: int) -> list[bytes]:
    return [event(number, event_type="teleport") for number in numbers]


@pytest.mark.all
@grid(lost=["nothing", "checkpoint"], way=["accepted", "fixed"])
def test_a_paused_topic_waits_for_a_decision(
    take: Take,
    kafka: KafkaServer,
    lake_settings: Settings,
    contracts: Path,
    verified: Callable[[str], object],
    way: str,
    lost: str,
) -> None:
    topic = kafka.new_topic(partitions=2)
    send(kafka, topic, [event(0), event(1)])
    take(topic, LAKE_CONTRACTS=contracts)
    send(kafka, topic, teleports(2, 3, 4))
    send(kafka, topic, [event(5)], partition=1)
    with pytest.raises(PausedError, match=r"3 of 4 units of a micro-batch are bad") as caught:
        take(topic, LAKE_CONTRACTS=contracts)
    assert any("teleport" in example for example in caught.value.examples)
    if lost == "checkpoint":
        repair.reset(lake_settings, "events")
    send(kafka, topic, [event(number) for number in range(6, 30)], partition=1)
    for most in (1, 1000):
        with pytest.raises(PausedError, match=r"3 of 4 units of a micro-batch are bad"):
            take(topic, LAKE_CONTRACTS=contracts, LAKE_KAFKA_MAX_OFFSETS_PER_MICRO_BATCH=most)
    assert len(units(lake_settings, "bronze")) == 2
    if way == "accepted":
        repair.accept(lake_settings, "events")
    else:
        write_contract(contracts, PAUSE, "teleport", version="2.1.0")
        apply_contract(changed(lake_settings, LAKE_CONTRACTS=contracts))
    take(topic, LAKE_CONTRACTS=contracts, silver=True)
    take(topic, LAKE_CONTRACTS=contracts, silver=True)
    bad = 3 if way == "accepted" else 0
    assert len(set(units(lake_settings, "bronze"))) == len(units(lake_settings, "bronze")) == 30 - bad
    assert len(units(lake_settings, "dead_letters")) == bad
    assert len(rows(lake_settings, "silver.events")) == 30 - bad
    assert verified(topic) == {}


@pytest.mark.all
@grid(crash=[0, 1, 2], way=["accepted", "fixed"])
def test_a_crash_after_the_decision_is_finished(
    take: Take,
    kafka: KafkaServer,
    lake_settings: Settings,
    contracts: Path,
    verified: Callable[[str], object],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    crash: int,
) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [event(0), *teleports(1, 2, 3)])
    with pytest.raises(PausedError):
        take(topic, LAKE_CONTRACTS=contracts)
    if way == "accepted":
        repair.accept(lake_settings, "events")
    else:
        write_contract(contracts, PAUSE, "teleport", version="2.1.0")
    crash_before(monkeypatch)(crash)
    with pytest.raises(LakeproofError, match="crashed, as asked"):
        take(topic, LAKE_CONTRACTS=contracts)
    send(kafka, topic, [event(4)])
    take(topic, LAKE_CONTRACTS=contracts)
    bad = 3 if way == "accepted" else 0
    assert (len(units(lake_settings, "bronze")), len(units(lake_settings, "dead_letters"))) == (5 - bad, bad)
    assert BreakerLog(lake_settings.state.database, "events").paused() == []
    assert verified(topic) == {}


@pytest.mark.all
def test_a_batch_over_the_past_pauses_by_itself(
    take: Take, kafka: KafkaServer, lake_settings: Settings, contracts: Path, verified: Callable[[str], object]
) -> None:
    topic = kafka.new_topic(partitions=2)
    send_at(kafka, topic, range(10))  # 0, 4 and 8 are garbage
    send_at(kafka, topic, [3], partition=1)
    take(topic, LAKE_CONTRACTS=contracts, **START)
    write_contract(contracts, "{share: 0.2, units: 5, over: micro-batch, action: pause}", version="2.0.1")
    with pytest.raises(PausedError, match=r"1 of 5 units"):
        take(topic, past=minutes(2, 6), LAKE_CONTRACTS=contracts)
    # The stream continues beside it, and another range is taken; smaller pieces do not change the batch.
    send_at(kafka, topic, [11])
    take(topic, LAKE_CONTRACTS=contracts)
    take(topic, past=minutes(1, 2), LAKE_CONTRACTS=contracts)
    assert landed(lake_settings, topic) == [1, 6, 7, 8, 9, 10]
    with pytest.raises(PausedError, match=r"1 of 5 units"):
        take(topic, past=minutes(0, 6), LAKE_CONTRACTS=contracts, LAKE_KAFKA_MAX_OFFSETS_PER_MICRO_BATCH=1)
    assert landed(lake_settings, topic) == [1, 6, 7, 8, 9, 10]
    repair.accept(lake_settings, "events")
    take(topic, past=minutes(2, 6), LAKE_CONTRACTS=contracts, silver=True)
    assert landed(lake_settings, topic) == [*range(1, 11)]
    assert verified(topic) == {}


@pytest.mark.all
def test_the_stream_is_paused_while_a_batch_over_the_past_goes_on(
    take: Take, kafka: KafkaServer, lake_settings: Settings, contracts: Path, verified: Callable[[str], object]
) -> None:
    topic = kafka.new_topic(partitions=2)
    send_at(kafka, topic, range(10))
    send_at(kafka, topic, [3], partition=1)
    take(topic, LAKE_CONTRACTS=contracts, **START)
    send(kafka, topic, teleports(10, 11, 12, 13))
    with pytest.raises(PausedError, match=r"4 of 4 units"):
        take(topic, LAKE_CONTRACTS=contracts)
    take(topic, past=minutes(2, 6), LAKE_CONTRACTS=contracts)
    assert landed(lake_settings, topic) == [*range(2, 10)]
    with pytest.raises(PausedError, match=r"4 of 4 units"):
        take(topic, LAKE_CONTRACTS=contracts)
    write_contract(contracts, PAUSE, "teleport", version="2.1.0")
    take(topic, LAKE_CONTRACTS=contracts)
    assert landed(lake_settings, topic) == [*range(2, 14)]
    assert verified(topic) == {}
