"""The page of one lake, generated once: its numbers equal those of SQL, and match the tables."""

import re
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.lakes import changed
from tests.reader.lake import rows
from tests.reader.page.lake import Day, Text, clock, event
from tests.reader.verify.replays import Replayer

from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.errors import UsageError
from lakeproof.settings import Settings, settings_of
from lakeproof.tables.schemas import ensure_tables
from reader.connect import Session, connect
from reader.page.collect import collect
from reader.page.event_path import event_path
from reader.page.model import Page, StreamPage
from reader.page.outlook import outlook
from reader.page.render import policy, render

ROOT = Path(__file__).parents[3]
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>'\"&\u202e\u2066\x1b[31m\x00\u200b\u2028"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Three hours of events: duplicates, conflicts, a late event, open and closed dead letters, hostile data."""
    home = tmp_path_factory.mktemp("page")
    made = settings_of({"LAKE_HOME": home / "lake", "LAKE_CONTRACTS": ROOT / "contracts", "LAKE_GOLD": ROOT / "gold"})
    day = Day(made)
    first = [event(str(number), clock(9)) for number in range(20)]
    day.hour(9, *first, event("refund", clock(9), event_type="refund"), b'{"user_id": ')
    day.hour(10, *first[:3], event("0", clock(9), user_id="other"), event("late", clock(9) - timedelta(days=30)))
    long = event("long", clock(11), user_id=["a" * 1_000_000])
    named = event("named", clock(11), **{HOSTILE: HOSTILE})
    day.hour(11, event(HOSTILE, clock(11), user_id=HOSTILE), long, named, b'{"user_id": "\xff"}')
    day.remove("000.json")
    Replayer(made, home / "today").replay(lambda letter: letter["reasons"][0]["code"] == "not_allowed")
    return made


@pytest.fixture(scope="module")
def session(settings: Settings) -> Iterator[Session]:
    with connect(settings) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(settings: Settings) -> Page:
    return collect(settings, [])


@pytest.fixture(scope="module")
def stream(page: Page) -> StreamPage:
    (found,) = page.streams
    return found


@pytest.fixture(scope="module")
def html(page: Page) -> str:
    return render(page)


def test_each_number_is_that_of_its_sql(stream: StreamPage, session: Session) -> None:
    values = {number.key: number.value for number in stream.numbers.values()}
    assert values == {
        "landed": 31, "bronze": 27, "open": 4, "closed": 1,
        "kept": 21, "duplicates": 3, "conflicts": 1, "late": 1, "undecided": 1, "expired": 1,
    }  # fmt: skip
    for number in stream.numbers.values():
        ((counted,),) = rows(session, f"SELECT {number.counted} FROM ({number.rows})")
        assert counted == number.value, number


def test_it_shows_the_flow_as_a_picture_and_as_a_table(html: str, stream: StreamPage) -> None:
    read = Text(html)
    for number in stream.numbers.values():
        assert f"sql-events-{number.key}" in read.ids
        assert f"{number.value:,}" in read.text
    assert "31 landed units = 26 rows of bronze + 5 dead letters, from 3 files" in read.text
    assert "Replays closed 1 of the dead letters, which added 1 row to bronze and left 0 new dead letters." in read.text
    assert "1 file left the landing zone since then." in read.text
    for link in read.links:
        assert link.startswith("#")
        assert link[1:] in read.ids, link
    assert len(read.ids) == len(set(read.ids))


def test_it_says_why_with_the_newest_example_and_its_place(stream: StreamPage, html: str) -> None:
    found = {each.codes: each for each in stream.reasons}
    assert set(found) == {"malformed_record", "wrong_type", "unknown_field", "invalid_utf8+missing_field"}
    wrong = found["wrong_type"]
    assert (wrong.letters, wrong.path, wrong.source) == (1, "$.user_id", "002.json")
    assert wrong.hours == [(clock(11), 1)]
    assert wrong.size is not None
    assert wrong.size > 1_000_000
    assert wrong.excerpt
    assert wrong.excerpt.marked.startswith('"user_id": ["aaa')
    assert len(wrong.excerpt.marked) < 200
    assert "<mark>&#34;user_id&#34;: " in html
    assert "1,000," in html
    assert [each.after_replay for each in stream.reasons] == [each.codes for each in stream.reasons]
    assert "By the contract in the file, a replay would take 0 of 4 examples." in Text(html).text


@pytest.mark.all
def test_it_says_what_a_replay_by_another_contract_would_do(settings: Settings, tmp_path: Path) -> None:
    text = (ROOT / "contracts" / "events.yaml").read_text()
    assert text.count("value: event_timestamp\n") == 1
    rescuing = text.replace(
        "value: event_timestamp\n", "value: event_timestamp\n  - property: driftPolicy\n    value: rescue\n"
    )
    (tmp_path / "events.yaml").write_text(rescuing)
    of_others = changed(settings, LAKE_CONTRACTS=str(tmp_path))
    page = collect(of_others, [])
    assert [each.codes for each in page.streams[0].reasons if each.after_replay == ""] == ["unknown_field"]
    text = Text(render(page)).text
    assert "By the contract in the file, a replay would take 1 of 4 examples: consumer replay events" in text
    assert text.count("A replay would take it.") == 1
    said, (moves, follows) = outlook(of_others, "events")
    assert said == "events: 27 rows of bronze and 4 open dead letters judged by 1.1.0."
    assert ["dead letters → bronze", "unknown_field", "1"] in [row[:3] for row in moves["rows"]]
    assert "1 dead letter would go to bronze: apply the contract, then run `consumer replay events`." in [
        row[0] for row in follows["rows"]
    ]


def test_what_came_from_data_is_escaped(html: str) -> None:
    assert not set("\u202e\u2066\x1b\x00\u200b\u2028") & set(html)
    assert "<script>alert" not in html
    assert "<img" not in html
    assert r"\u202e" in html
    read = Text(html)
    assert read.tags.count("script") == read.tags.count("style") == 1
    assert not [name for name, _ in read.attributes if name.startswith("on") or name == "style"]
    assert len(html) < 300_000


def test_it_requests_nothing_from_elsewhere(html: str) -> None:
    read = Text(html)
    assert ("content", policy(live=False)) in read.attributes
    assert policy(live=False).startswith("default-src 'none'; style-src 'sha256-")
    outside = [value for name, value in read.attributes if name in ("src", "href", "action") and value[:1] != "#"]
    assert outside == []
    assert "url(" not in html


def test_it_can_be_read_without_seeing_it(html: str) -> None:
    read = Text(html)
    assert read.tags.count("h1") == read.tags.count("main") == 1
    assert ("lang", "en") in read.attributes
    for cell in re.findall(r"<th\b[^>]*>", html):
        assert 'scope="' in cell, cell
    for image in re.findall(r"<svg\b[^>]*>", html):
        assert 'role="img"' in image or 'role="group"' in image
        labels = re.findall(r'aria-labelledby="([^"]*)"', image)[0].split()
        assert set(labels) <= set(read.ids), image
    for region in re.findall(r'<div class="scroll"[^>]*>', html):
        assert 'tabindex="0" role="region" aria-label="' in region
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html


def test_it_is_a_page_without_charts_too(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reader.page.charts._vega", lambda: None)
    read = Text(render(page))
    assert 'Charts need a package: pip install "lakeproof[page]".' in read.text
    assert "By hour, as a table" in read.text


def test_it_has_contract_layers_tables_and_micro_batches(stream: StreamPage, html: str) -> None:
    assert stream.contract
    assert {each.name for each in stream.contract.fields if each.differs} == set()
    assert [each.number for each in stream.micro_batches] == [3, 2, 1, 0]
    assert [each.is_replay for each in stream.micro_batches] == [True, False, False, False]
    bronze = next(each for each in stream.tables if each.facts.name == "bronze.events")
    assert (bronze.facts.rows, bronze.rows, bronze.files, bronze.snapshots) == (
        27,
        27,
        bronze.facts.data_files,
        bronze.facts.snapshots,
    )
    text = Text(html).text
    assert "gold.user_activity does not exist yet: consumer run events fills it." in text
    assert "Nothing was proven yet" in text


def test_the_way_of_an_event_goes_from_bronze_to_its_verdicts(settings: Settings, session: Session) -> None:
    bronze, silver, ledger = event_path(settings, session, "events", "0")
    assert [row[:2] for row in bronze["rows"]] == [["000.json", "0"], ["001.json", "0"], ["001.json", "3"]]
    assert sorted(row[0] for row in silver["rows"]) == ["conflict", "duplicate", "kept"]
    assert [row[0] for row in ledger["rows"]] == ["000.json", "001.json"]
    assert event_path(settings, session, "events", "' OR true --")[0]["rows"] == []


def test_a_key_that_looks_like_a_receipt_is_a_key(tmp_path: Path) -> None:
    settings = settings_of({"LAKE_HOME": tmp_path / "lake", "LAKE_CONTRACTS": ROOT / "contracts"})
    Day(settings).hour(9, event("2026/11/28", clock(9)))
    with connect(settings) as session:
        bronze, *_ = event_path(settings, session, "events", "2026/11/28")
    assert [row[0] for row in bronze["rows"]] == ["000.json"]


def test_an_unknown_stream_names_the_known_ones(settings: Settings) -> None:
    with pytest.raises(UsageError, match="events"):
        collect(settings, ["nope"])


def test_a_lake_without_tables_says_what_to_do(lake_settings: Settings) -> None:
    page = collect(lake_settings, [])
    assert "The lake has no tables yet. Run lakeproof demo" in Text(render(page)).text


@pytest.mark.all
def test_a_contract_that_cannot_be_read_hides_no_other_stream(lake_settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "contracts"
    shutil.copytree(lake_settings.contracts, folder)
    settings = changed(lake_settings, LAKE_CONTRACTS=folder)
    Day(settings).hour(9, event("one", clock(9)))
    for name in ("sensors", "clickstream"):
        ensure_tables(open_catalog(settings), load_contract(folder, name))
    (folder / "draft.yaml").write_text("half: [")
    (folder / "sensors.yaml").write_text("half: [")
    (folder / "clickstream.yaml").unlink()
    page = collect(settings, [])
    assert [stream.name for stream in page.streams] == ["clickstream", "events", "sensors"]
    wrong = {name: problem.text for name, problem in page.wrong}
    assert wrong["clickstream"] == (
        "ledger.clickstream exists, but contracts/clickstream.yaml does not. Restore the contract"
    )
    assert f"{folder / 'sensors.yaml'}:1" in wrong["sensors"]
    assert wrong["clickstream"] in Text(render(page)).text
    with pytest.raises(UsageError):
        collect(settings, ["sensors"])


def test_a_lost_table_is_what_is_wrong(settings: Settings, page: Page) -> None:
    catalog = open_catalog(settings)
    table = catalog.load_table("bronze.events")
    catalog.drop_table("bronze.events")
    try:
        (name, problem), *_ = collect(settings, []).wrong
    finally:
        catalog.register_table("bronze.events", table.metadata_location)
    assert (name, problem.text) == ("events", "The table bronze.events is missing: restore it, or run the consumer")
