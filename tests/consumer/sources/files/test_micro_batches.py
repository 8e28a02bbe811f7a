"""Micro-batches of landed files: their contract, their size, and a landing log that does not fit."""

from pathlib import Path

import pytest
from tests.lakes import changed

from consumer.sources.files.micro_batches import MicroBatches
from lakeproof.errors import LakeproofError
from lakeproof.landing.zone import landing_zone
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.landing_log import LandingLog, Position

MANY_BYTES = 1 << 30


@pytest.fixture
def log(lake_settings: Settings) -> LandingLog:
    return LandingLog(lake_settings.state.database, "events")


def micro_batches(settings: Settings, log: LandingLog, **changes: object) -> MicroBatches:
    at_once = changed(settings, LAKE_SETTLE_SECONDS=0, **changes)
    return MicroBatches(at_once, "events", landing_zone(at_once, "events"), log, None)


def land(landing: Path, name: str, text: str = "[]") -> None:
    (landing / name).write_text(text)


def test_a_contract_that_is_made_current_holds_from_the_next_micro_batch_on(
    lake_settings: Settings, landing: Path, log: LandingLog
) -> None:
    contracts = ContractLog(lake_settings.state.database)
    contracts.make_current("events", "old", b"1")
    running = micro_batches(lake_settings, log)
    land(landing, "a.json")
    first = running.next(log.base, MANY_BYTES)
    assert first
    contracts.make_current("events", "new", b"2")
    assert running.next(Position.parse(first.end), MANY_BYTES) is None  # nothing new landed, whatever the contract
    land(landing, "b.json")
    second = running.next(Position.parse(first.end), MANY_BYTES)
    assert second
    assert [[part.name for part in each.parts] for each in (first, second)] == [["a.json"], ["b.json"]]
    assert (first.contract, second.contract) == ("old", "new")
    assert (first.start, first.end) == (str(log.base), second.start)


def test_a_micro_batch_has_at_most_so_many_files_or_bytes_and_at_least_one(
    lake_settings: Settings, landing: Path, log: LandingLog
) -> None:
    ContractLog(lake_settings.state.database).make_current("events", "any", b"")
    for name in "abcde":
        land(landing, f"{name}.json", "[{}, {}]")

    def sizes(most_bytes: int, **changes: object) -> list[int]:
        running, at, found = micro_batches(lake_settings, log, **changes), log.base, []
        while held := running.next(at, most_bytes):
            at = Position.parse(held.end)
            found.append(len(held.parts))
            assert held.more == (sum(found) < 5)
        return found

    assert sizes(MANY_BYTES) == [5]
    assert sizes(MANY_BYTES, LAKE_MAX_FILES_PER_MICRO_BATCH=2) == [2, 2, 1]
    assert sizes(16) == [2, 2, 1]
    assert sizes(1) == [1] * 5


def test_without_a_contract_nothing_is_read(lake_settings: Settings, landing: Path, log: LandingLog) -> None:
    land(landing, "a.json")
    with pytest.raises(LakeproofError, match="has no contract for the stream 'events'"):
        micro_batches(lake_settings, log).next(log.base, MANY_BYTES)


def test_a_position_that_the_log_does_not_have_is_refused(
    lake_settings: Settings, landing: Path, log: LandingLog
) -> None:
    with pytest.raises(LakeproofError, match=r"position 3, which the landing log does not have(?s:.*)reset events"):
        micro_batches(lake_settings, log).next(Position(3, log.base.chain), MANY_BYTES)
