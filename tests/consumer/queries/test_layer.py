"""When the query of a layer takes a micro-batch, and what it reports while a server is unavailable."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from consumer.layers.base import Commits, Layer
from consumer.queries import layer as query
from consumer.queries.bulletin import Bulletin
from consumer.queries.layer import PATIENCE_SECONDS, LayerQuery
from consumer.queries.replay import ReplayQuery
from consumer.queries.trigger import Trigger
from consumer.scope import Scope
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.settings import Settings

SPARK: Any = None
START, CREATE = "Start the brokers.", "Create the topic."
FOLLOWED = "silver-a"


class Held:
    """A lease that is always held."""

    def check(self) -> None: ...


class Faulty(Layer[int]):
    """Layer without tables, whose looks raise the given errors, or find work."""

    event = "toy micro-batch"
    name, lease_name, stream, follows = "toy", "toy", "orders", FOLLOWED

    def __init__(self, faults: Iterable[LakeproofError | None]) -> None:
        self._faults: Iterator[LakeproofError | None] = iter(faults)

    @classmethod
    def in_scope(cls, scope: Scope) -> "Iterable[Faulty]":
        return []

    def next(self, spark: object) -> int:
        if fault := next(self._faults, None):
            raise fault
        return 0

    def compute(self, spark: object, work: int) -> Commits:
        yield lambda: None
        return {}


def resumed(settings: Settings, layer: Layer[Any], trigger: Trigger) -> LayerQuery:
    found = LayerQuery(settings, layer, trigger)
    found.resume(SPARK, Held())  # type: ignore[arg-type]
    return found


def test_a_server_that_is_unavailable_is_reported_once(lake_settings: Settings, tmp_path: Path) -> None:
    """The brokers are unavailable, then have no topic, then take a micro-batch, then are unavailable again."""

    def faults() -> list[LakeproofError | None]:
        return [
            UnavailableError("Kafka does not respond.", START),
            UnavailableError("Kafka does not respond: Connect to port 1 failed after 0ms.", START),
            UnavailableError("Kafka has no topic t.", CREATE),
            None,
            UnavailableError("Kafka does not respond: Connect to port 1 failed after 1ms.", START),
            LakeproofError("The table was restored."),
        ]

    layer, bulletin = Faulty(faults()), Bulletin()
    layer.outlasts_outages = True
    sink = resumed(lake_settings, layer, Trigger())
    with structlog.testing.capture_logs() as logs:
        assert [sink.look(SPARK, bulletin) for _ in range(5)] == [False, False, False, True, False]
    assert [line["hint"] for line in logs if line["event"] == "publishing waits"] == [START, CREATE, START]
    assert sink.micro_batches == 1
    with pytest.raises(LakeproofError, match="restored"):  # waiting would not help
        sink.look(SPARK, bulletin)
    for waits, trigger in ((True, Trigger(available_now=True)), (False, Trigger())):
        other = Faulty(faults())
        other.outlasts_outages = waits
        with pytest.raises(UnavailableError):
            resumed(lake_settings, other, trigger).look(SPARK, bulletin)


def test_while_the_layer_before_has_a_backlog_a_patient_one_looks_now_and_then(
    lake_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, bulletin, taken = [0.0], Bulletin(), []
    monkeypatch.setattr(query, "monotonic", lambda: now[0])
    bulletin.note_backlog(FOLLOWED, there_is=True)
    layer = Faulty([])
    layer.waits_for_backlog = True
    patient = resumed(lake_settings, layer, Trigger())

    def look(*seconds: float) -> None:
        for now[0] in seconds:
            if patient.look(SPARK, bulletin):
                taken.append(now[0])

    most = PATIENCE_SECONDS
    look(1, most - 1, most, most + 1, 2 * most - 1, 2 * most)
    bulletin.note_backlog(FOLLOWED, there_is=False)
    look(2 * most + 1, 2 * most + 2)
    assert taken == [most, 2 * most, 2 * most + 1, 2 * most + 2]


def test_a_backlog_is_known_by_the_query_that_has_it(lake_settings: Settings, tmp_path: Path) -> None:
    bulletin, layer = Bulletin(), Faulty([])
    toy = resumed(lake_settings, layer, Trigger())
    for layer.has_backlog in (True, True, False, False):
        toy.look(SPARK, bulletin)
        assert bulletin.has_backlog("toy") == layer.has_backlog
        assert not bulletin.has_backlog("silver-b")


def test_a_backlog_is_one_of_the_queries_after_it_too(lake_settings: Settings) -> None:
    bulletin = Bulletin()
    toy = resumed(lake_settings, Faulty([]), Trigger())
    for before in (True, True, False):
        bulletin.note_backlog(FOLLOWED, there_is=before)
        toy.look(SPARK, bulletin)
        assert bulletin.has_backlog("toy") == before


def test_rows_with_bytes_of_dead_letters_reach_tasks_in_small_batches() -> None:
    """The sink of dead letters is a layer, and each dead letter may be as large as a record."""
    for settings in (LayerQuery.spark_settings, ReplayQuery.spark_settings):
        assert settings["spark.sql.execution.arrow.maxRecordsPerBatch"] == "10000"
        assert settings["spark.sql.execution.arrow.maxBytesPerBatch"] == str(16 << 20)
