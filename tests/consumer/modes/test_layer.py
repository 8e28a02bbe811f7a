"""How a mode finds its next micro-batch while its storage is unreliable. Neither Spark nor Kafka."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from consumer.modes.checkpoint import Checkpoint
from consumer.modes.layer import ModeLayer
from consumer.modes.plan import ModePlan
from consumer.sources.kafka.read import MessagesLostError
from lakeproof.errors import UnavailableError
from lakeproof.kafka.modes import ModeName, mode_of
from lakeproof.kafka.topic import Extent, Topic
from lakeproof.settings import settings_of

SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))


def test_a_plan_whose_answer_was_lost_is_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [5]
    monkeypatch.setattr(Topic, "identity", lambda _: ("id", [0]))
    monkeypatch.setattr(Topic, "extents", lambda _, wanted: {number: Extent(0, ends[-1]) for number in wanted})
    settings = settings_of({"LAKE_HOME": tmp_path, "LAKE_DEDUPE_PARQUET": str(tmp_path / "kept")})
    layer = ModeLayer(settings, mode_of(ModeName.DEDUPE, settings), to_the_end=False)
    layer.resume()
    begin = Checkpoint.begin

    def lose_the_answer(checkpoint: Checkpoint, plan: ModePlan) -> None:
        begin(checkpoint, plan)
        raise UnavailableError("Cannot write: the connection was closed.", "Check that the server is running.")

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(Checkpoint, "begin", lose_the_answer)
        assert layer.next(SPARK) is None
    assert [(line["event"], line["message"]) for line in logs] == [
        ("waiting", "Cannot write: the connection was closed.")
    ]
    ends.append(9)  # more messages have arrived
    plan = layer.next(SPARK)
    assert plan is not None
    assert (plan.number, plan.end.next(0)) == (0, 5)
    assert layer.next(SPARK) == plan
    layer.close()


def test_a_plan_that_was_not_written_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Topic, "identity", lambda _: ("id", [0]))
    monkeypatch.setattr(Topic, "extents", lambda _, wanted: {number: Extent(0, 5) for number in wanted})
    settings = settings_of({"LAKE_HOME": tmp_path, "LAKE_DEDUPE_PARQUET": str(tmp_path / "kept")})
    layer = ModeLayer(settings, mode_of(ModeName.DEDUPE, settings), to_the_end=False)
    layer.resume()

    def refuse(*_: object) -> None:
        raise UnavailableError("Cannot write.", "")

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "begin", refuse)
        assert layer.next(SPARK) is None
    plan = layer.next(SPARK)
    assert plan is not None
    assert plan.end.next(0) == 5
    layer.close()


@pytest.mark.parametrize(
    ("extent", "message"),
    [
        pytest.param(Extent(7, 9), "Offsets 5 to 6 of partition 0 of clicks were removed", id="by retention"),
        pytest.param(Extent(0, 3), "ends at offset 3, but the checkpoint is at 5: brokers lost", id="by brokers"),
    ],
)
def test_what_a_topic_lost_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extent: Extent, message: str
) -> None:
    extents = [Extent(0, 5)]
    monkeypatch.setattr(Topic, "identity", lambda _: ("id", [0]))
    monkeypatch.setattr(Topic, "extents", lambda _, wanted: dict.fromkeys(wanted, extents[-1]))
    own = {"LAKE_DEDUPE_STARTING_OFFSETS": "latest", "LAKE_DEDUPE_TOPIC": "clicks"}
    settings = settings_of({"LAKE_HOME": tmp_path, "LAKE_DEDUPE_PARQUET": str(tmp_path / "kept"), **own})
    layer = ModeLayer(settings, mode_of(ModeName.DEDUPE, settings), to_the_end=False)
    layer.resume()
    extents.append(extent)
    with pytest.raises(MessagesLostError, match=message) as caught:
        layer.next(SPARK)
    assert "new checkpoint" in caught.value.hint
    layer.close()
