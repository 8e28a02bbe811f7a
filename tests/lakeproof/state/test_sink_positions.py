"""Positions of sinks."""

import pytest

from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings
from lakeproof.state.sink_positions import SinkPosition, SinkPositions

SINK, TABLE = "silver.events-to-t", "silver.events"
FIRST, SECOND = SinkPosition("id", "topic", "1"), SinkPosition("id", "topic", "2")


def test_a_topic_without_a_position_is_remembered(lake_settings: Settings) -> None:
    positions = SinkPositions(lake_settings.state.database)
    positions.record(SINK, TABLE, FIRST, None)
    positions.forget(SINK)
    assert (positions.get(SINK), positions.recorded_at(SINK)) == (None, None)
    assert (positions.sinks_of(TABLE), positions.tables()) == ([SINK], {TABLE})
    positions.record(SINK, TABLE, SECOND, None)
    assert positions.get(SINK) == SECOND
    assert positions.recorded_at(SINK) is not None


@pytest.mark.parametrize("before", [None, FIRST])
def test_a_sink_that_another_consumer_has_moved_is_refused(
    lake_settings: Settings, before: SinkPosition | None
) -> None:
    positions = SinkPositions(lake_settings.state.database)
    positions.record(SINK, TABLE, SECOND, None)
    with pytest.raises(LakeproofError, match="Another consumer sends"):
        positions.record(SINK, TABLE, FIRST, before)
    assert positions.get(SINK) == SECOND
