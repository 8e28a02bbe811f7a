"""The contract of a micro-batch is the current one when the micro-batch is formed, however often it is tried."""

import pickle
from pathlib import Path

import pytest
from tests.lakes import changed

from consumer.bulletin import Bulletin
from consumer.sources.files.stream import LandingOptions, LandingReader
from lakeproof.errors import LakeproofError
from lakeproof.landing.zone import landing_zone
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.landing_log import LandingLog


@pytest.fixture
def landing(lake_settings: Settings) -> Path:
    folder = lake_settings.home / "landing" / "events"
    folder.mkdir(parents=True)
    return folder


def reader(settings: Settings, landing: Path) -> LandingReader:
    at_once = changed(settings, LAKE_SETTLE_SECONDS=0)
    begin = LandingLog(settings.state.database, "events").base
    pickled = pickle.dumps((at_once, landing_zone(at_once, "events")))
    return LandingReader(LandingOptions("bronze-events", "events", begin, Bulletin(landing.parent), None, pickled))


def land(landing: Path, name: str) -> None:
    (landing / name).write_text("[]")


def test_a_contract_that_is_made_current_holds_from_the_next_micro_batch_on(
    lake_settings: Settings, landing: Path
) -> None:
    contracts = ContractLog(lake_settings.state.database)
    contracts.make_current("events", "old", b"1")
    running = reader(lake_settings, landing)
    begin = running.initialOffset()
    land(landing, "a.json")
    rows, first = running.read(begin)
    contracts.make_current("events", "new", b"2")
    assert running.read(first)[1] == first  # nothing new landed: no micro-batch, whatever the contract
    land(landing, "b.json")
    more, second = running.read(first)
    assert [row[-1] for row in rows] == ["old"]
    assert [row[-1] for row in more] == ["new"]
    assert (first["contract"], second["contract"]) == ("old", "new")

    again = reader(lake_settings, landing)  # after a crash
    assert [(row[1], row[-1]) for row in again.readBetweenOffsets(begin, first)] == [("a.json", "old")]
    assert [(row[1], row[-1]) for row in again.readBetweenOffsets(first, second)] == [("b.json", "new")]


def test_without_a_contract_nothing_is_read(lake_settings: Settings, landing: Path) -> None:
    with pytest.raises(LakeproofError, match="has no contract for the stream 'events'"):
        reader(lake_settings, landing).initialOffset()
