"""The stranger's test: the first line of a lake's page tells what went wrong."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.reader.page.lake import Day, Text, clock, event, good
from tests.reader.verify.lake import BRONZE, LEDGER
from tests.reader.verify.silver.tables import KEPT
from tests.selection import only_with_all

from consumer.iceberg.marker import Committed, Marker, property_of
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings
from lakeproof.state.failures import record_failure
from lakeproof.state.proofs import Proof, ProofKind, ProofOutcome
from reader.page.collect import collect
from reader.page.health import Facts, problems
from reader.page.render import render


def garbage(day: Day) -> None:
    """A producer sends garbage from 14:00 on."""
    day.hour(13, *good(13), decided=False)
    for hour in (14, 15):
        bad = (each | {"user_id": 17} if number % 2 else each for number, each in enumerate(good(hour)))
        day.hour(hour, *bad, decided=False)


def storm(day: Day) -> None:
    """Each event is sent again and again from 12:00 on."""
    day.hour(11, *good(11))
    for hour in (12, 13):
        day.hour(hour, *good(11), *good(hour, 20))


def late(day: Day) -> None:
    """Events of last month arrive from 10:00 on."""
    day.hour(9, *good(9))
    old = [event(f"old-{number}", clock(0) - timedelta(days=30)) for number in range(40)]
    day.hour(10, *old, *good(10, 100), *good(12, 100))


def behind(day: Day) -> None:
    """Three files are not consumed."""
    day.hour(9, *good(9, 5), decided=False)
    for number in range(3):
        day.wait(10 + number, f"new-{number}.json", b"[]")


def passed(day: Day) -> None:
    """The consumer has skipped a file, and the ledger does not have it."""
    day.hour(9, *good(9, 5), decided=False)
    day.wait(10, "gone.json", b"[]")
    log = day.log()
    ledger = day.catalog.load_table(LEDGER)
    marker = Marker("", 0, day.contract.digest, "0:", str(log.head()))
    snapshot = ledger.current_snapshot()
    assert snapshot
    for name in (LEDGER, BRONZE, "dead_letters.events"):
        with day.catalog.load_table(name).transaction() as transaction:
            text = Committed(marker, snapshot.snapshot_id, 1).as_text()
            transaction.set_properties({property_of(bronze_query("events")): text})


def removed(day: Day) -> None:
    """Rows of bronze were deleted."""
    day.hour(9, *good(9), decided=False)
    day.edit(BRONZE, lambda rows: rows[3:])


def broken(day: Day) -> None:
    """A data file of the dead letters was removed."""
    day.hour(9, b"garbage", decided=False)
    (file,) = day.settings.home.glob("warehouse/dead_letters/events/data/**/*.parquet")
    file.unlink()


def disappeared(day: Day) -> None:
    """A file was discovered, and removed before it was read."""
    day.hour(9, *good(9, 5), decided=False)
    day.wait(10, "gone.json", b"[]")
    day.log()
    day.remove("gone.json")


def failed(day: Day) -> None:
    """A query ended with an error."""
    day.hour(9, *good(9, 5), decided=False)
    day.log()
    record_failure(day.settings.state.database, "silver.events", LakeproofError("The disk is full."))


@pytest.mark.parametrize(
    ("happen", "said", "since"),
    [
        (garbage, "Too many bad units: 100 of 200 (50%) became dead letters, most often for wrong_type", clock(14)),
        only_with_all(storm, "Duplicates: 200 of 240 rows (83%) were sent again", clock(12)),
        only_with_all(
            late, "Late rows: 40 of 240 (17%) came after the horizon had passed them, and are not in silver", clock(10)
        ),
        (behind, "The consumer is behind: 3 files wait, and no consumer runs", clock(10)),
        only_with_all(
            passed, "The file gone.json is lost: the consumer has passed it, and no table has its records", clock(10)
        ),
        (removed, "bronze.events has 97 rows, and the ledger counted 100: 3 rows are missing.", None),
        only_with_all(broken, "dead_letters.events cannot be read: IO Error", None),
        only_with_all(disappeared, "The file gone.json is gone: it disappeared before it was read", clock(10)),
        only_with_all(failed, "The query silver.events failed: The disk is full", ...),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_the_first_line_says_what_is_wrong_and_since_when(
    lake_settings: Settings, happen: Callable[[Day], None], said: str, since: datetime | None
) -> None:
    happen(Day(lake_settings))
    page = collect(lake_settings, ["events"])
    (name, problem), *more = page.wrong
    assert (name, problem.text[: len(said)], more) == ("events", said, [])
    assert since is ... or problem.since == since
    text = Text(render(page)).text
    assert f"Not well: events: {said.partition('. ')[0].rstrip('.')}" in text.replace("reader verify events", "")
    assert since in (None, ...) or f", since {since:%Y-%m-%d %H:%M:%S} UTC" in text


NOW = datetime.now(UTC)
PROOF = Proof("events", ProofKind.ALL, NOW, NOW, "somebody@host", ProofOutcome.CLEAN, 0)


@pytest.mark.parametrize(
    ("proof", "said"),
    [
        (None, "Nothing was proven yet: run `reader verify events`"),
        (replace(PROOF, outcome=ProofOutcome.FAILED, faults=3), "The last proof found 3 faults"),
        (replace(PROOF, proven_at=NOW - timedelta(days=2)), "The last proof is more than a day old"),
        (PROOF, None),
    ],
)
def test_a_proof_may_be_missing_failed_or_old(lake_settings: Settings, proof: Proof | None, said: str | None) -> None:
    facts = Facts(load_contract(lake_settings.contracts, "events"), proof=proof)
    assert [each.text for each in problems(facts)] == ([said] if said else [])


def test_a_commit_that_is_under_way_is_no_loss(lake_settings: Settings) -> None:
    day = Day(lake_settings)
    day.hour(9, *good(9))
    day.edit(BRONZE, lambda rows: [*rows, rows[0]])
    day.edit(KEPT, lambda rows: rows[1:])
    said = ["bronze.events has 101 rows", "silver.events has 99 rows"]
    found = collect(lake_settings, ["events"]).wrong
    assert [problem.text.partition(", and")[0] for _, problem in found] == said
    for name, query in ((BRONZE, bronze_query("events")), (KEPT, "silver-events")):
        marker = Committed(Marker("", 7, day.contract.digest, "0", "7"), 1, 1)
        with day.catalog.load_table(name).transaction() as transaction:
            transaction.set_properties({property_of(query): marker.as_text()})
    assert collect(lake_settings, ["events"]).wrong == []


def test_silver_that_waits(lake_settings: Settings) -> None:
    facts = Facts(load_contract(lake_settings.contracts, "events"), proof=PROOF, silver_waits=NOW - timedelta(hours=1))
    assert [each.text for each in problems(facts)] == ["silver.events is behind: rows of bronze wait for verdicts"]
    # Not NOW: the module may have been imported long ago.
    assert problems(replace(facts, silver_waits=datetime.now(UTC))) == []


def test_a_stream_that_the_breaker_pauses(lake_settings: Settings) -> None:
    facts = Facts(load_contract(lake_settings.contracts, "events"), proof=PROOF, paused=NOW)
    assert [(each.text, each.since) for each in problems(facts)] == [
        ("The breaker has paused the stream: see `consumer status`", NOW)
    ]
