"""What `consumer give-up` finds of a paused batch over the past whose offsets the topic has removed."""

import pytest

from consumer.app.repair import lost_offsets
from consumer.sources.kafka.source import KafkaSource
from lakeproof.catalog import open_catalog
from lakeproof.checkpoint import bronze_query
from lakeproof.history.apply import adopt
from lakeproof.kafka.offsets import Offsets
from lakeproof.kafka.recorded import Recorded, record_topic
from lakeproof.kafka.topic import Extent, Topic
from lakeproof.settings import Settings
from lakeproof.state.breaker_log import BreakerLog, QueryKind
from lakeproof.state.contract_log import ContractLog

BEGAN = "incoming/0=6,1=6"


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """The first offsets that the topic still has, by partition, which tests change."""
    first = {0: 0, 1: 0}
    monkeypatch.setattr(Topic, "identity", lambda _: ("id", [0, 1]))
    monkeypatch.setattr(Topic, "extents", lambda _, wanted: {each: Extent(first[each], 9) for each in wanted})
    return first


@pytest.fixture
def source(lake_settings: Settings, first: dict[int, int]) -> KafkaSource:
    """The source of a stream that begins at offset 6, with a paused batch over what is before."""
    catalog = open_catalog(lake_settings)
    adopt(catalog, lake_settings, "events", ContractLog(lake_settings.state.database))
    record_topic(catalog, "events", Recorded("id", Offsets.parse(BEGAN)))
    log = BreakerLog(lake_settings.state.database, "events")
    log.pause(QueryKind.PAST, (BEGAN, f"{BEGAN};0=2-6,1=3-5", "past"), {}, None)
    source = KafkaSource(lake_settings, "events", bronze_query("events"), True)
    source.recall(catalog)
    return source


@pytest.mark.parametrize(
    ("removed", "lost"),
    [
        pytest.param({0: 2, 1: 3}, [], id="nothing"),
        pytest.param({0: 4}, [(0, 2, 4, 4)], id="a part"),
        pytest.param({0: 6}, [(0, 2, 6, 6)], id="one partition"),
        pytest.param({0: 7}, [(0, 2, 7, 7)], id="one partition, and of the stream"),
        pytest.param({1: 8}, [(1, 3, 5, 8), (1, 6, 8, 8)], id="not what nobody wanted to read in between"),
        pytest.param({0: 6, 1: 6}, [], id="the whole batch, which has no future"),
        pytest.param({0: 7, 1: 6}, [(0, 6, 7, 7)], id="also of the stream"),
    ],
)
def test_lost_offsets_of_a_paused_batch_are_found(
    lake_settings: Settings,
    source: KafkaSource,
    first: dict[int, int],
    removed: dict[int, int],
    lost: list[tuple[int, int, int, int]],
) -> None:
    first |= removed
    assert lost_offsets(lake_settings, "events") == lost
    # The next batch, over another period, ends the pause if nothing is left of it.
    (trip,) = BreakerLog(lake_settings.state.database, "events").paused()
    is_over = min(first[0] - 6, first[1] - 5) >= 0
    assert source.takes_of_past(trip.start, trip.end, [(0, 0, 1)]) == is_over
    assert source.still_next(trip.start, trip.end, None) == (None if is_over else (trip.start, trip.end))


def test_offsets_in_the_tables_are_not_lost(source: KafkaSource, first: dict[int, int]) -> None:
    first[0] = 4
    assert source.still_next(BEGAN, f"{BEGAN};0=2-4", f"{BEGAN};0=2-4") is None
