"""Plots of a data product: contents, output, and errors."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.reader.lake import Done
from typer.testing import CliRunner

from lakeproof.addresses import sqlite_path
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.gold.product_file import load_product
from lakeproof.settings import Settings, settings_of
from lakeproof.tables.schemas import gold_schema
from reader.cli import app
from reader.plot.image import write_image
from reader.plot.series import Line, Panel, Plot, read_plot
from reader.plot.terminal import as_text

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
CONTRACTS = Path(__file__).parents[3] / "contracts"
PRODUCT = """\
name: activity
silver: events
keys: [user_id, event_type]
window: {size: 1 hour}
measures:
  newest: max(event_timestamp)
  events: count(*)
  longest: max(length(user_id))
  weight: sum(length(product_id))
"""


def row(hour: int, user: str, kind: str | None, events: int, weight: int | None = None) -> dict[str, Any]:
    start = NOON + hour * HOUR
    return {
        "window_start": start,
        "window_end": start + HOUR,
        "user_id": user,
        "event_type": kind,
        "newest": start,
        "events": events,
        "longest": Decimal(len(user)),
        "weight": weight,
        "_updated_at": NOON,
    }


ROWS = [
    *(row(hour, "a", "view", hour + 1, weight=None if hour == 1 else hour) for hour in (2, 1, 0)),
    row(1, "b", "view", 40),
    row(1, "b", None, 3),
    row(2, "it's", "view", 2),
    row(2, "\x1b[31m", "view", 1),
]


def lake_with(folder: Path, text: str, rows: list[dict[str, Any]] | None) -> Settings:
    (folder / "gold").mkdir()
    name = text.partition("name: ")[2].splitlines()[0]
    (folder / "gold" / f"{name}.yaml").write_text(text)
    settings = settings_of({"LAKE_HOME": folder, "LAKE_CONTRACTS": CONTRACTS, "LAKE_GOLD": folder / "gold"})
    if rows is None:
        return settings
    schema = gold_schema(load_product(settings.gold, name, lambda _: load_contract(CONTRACTS, "events")))
    catalog = open_catalog(settings)
    catalog.create_namespace("gold")
    table = catalog.create_table(f"gold.{name}", schema)
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    return settings


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return lake_with(tmp_path_factory.mktemp("plot"), PRODUCT, ROWS)


Run = Callable[..., Done]


@pytest.fixture
def run(lake: Settings, reader_environment: Callable[[Settings], dict[str, str]]) -> Callable[..., Any]:
    def plot(*arguments: str) -> Any:
        environment = reader_environment(lake) | {"LAKE_GOLD": str(lake.gold), "COLUMNS": "70"}
        return CliRunner().invoke(app, ["plot", "activity", *arguments], env=environment, catch_exceptions=False)

    return plot


def at(*hours: int) -> tuple[datetime, ...]:
    return tuple(NOON + hour * HOUR for hour in hours)


def test_each_measure_has_a_panel_and_each_key_a_line(lake: Settings) -> None:
    plot = read_plot(lake, "activity", ["events", "weight"], [], 3)
    assert plot == Plot(
        "gold.activity, windows of 1 hour: 3 of 5 keys, with the greatest events",
        NOON,
        NOON + 2 * HOUR,
        (
            Panel(
                "events",
                (
                    Line("b, view", at(1), (40.0,)),
                    Line("a, view", at(0, 1, 2), (1.0, 2.0, 3.0)),
                    Line("b, null", at(1), (3.0,)),
                ),
                from_zero=True,
            ),
            Panel(
                "weight",
                (Line("b, view", (), ()), Line("a, view", at(0, 2), (0.0, 2.0)), Line("b, null", (), ())),
                from_zero=True,
            ),
        ),
    )


@pytest.mark.parametrize(
    ("keys", "labels"),
    [
        ([], ["b, view", "a, view", "b, null", "it's, view", "\\x1b[31m, view"]),
        (["user_id=a"], ["a, view"]),
        (["user_id=a", "user_id=it's"], ["a, view", "it's, view"]),
        (["user_id=b", "event_type=view"], ["b, view"]),
    ],
)
def test_keys_can_be_chosen(lake: Settings, keys: list[str], labels: list[str]) -> None:
    (panel,) = read_plot(lake, "activity", ["events"], keys, 5).panels
    assert [line.label for line in panel.lines] == labels


def test_by_default_all_measures_are_drawn_that_are_numbers(lake: Settings) -> None:
    plot = read_plot(lake, "activity", [], [], 26)
    assert [panel.measure for panel in plot.panels] == ["events", "longest", "weight"]
    assert plot.title == "gold.activity, windows of 1 hour"


@pytest.mark.parametrize(
    ("name", "measures", "keys", "error", "hint"),
    [
        ("other", [], [], "No data product 'other' found", "Products in this folder: activity"),
        ("activity", ["x"], [], "activity has no measure 'x'.", "can be drawn: events, longest, weight."),
        ("activity", ["newest"], [], "The measure newest is not a number.", "events, longest, weight."),
        ("activity", [], ["x=1"], "'x=1' is not a key of activity.", "Use one of user_id=VALUE, event_type=VALUE."),
        ("activity", [], ["user_id"], "'user_id' is not a key of activity.", "Use one of"),
        ("activity", [], ["user_id=z"], "gold.activity has no rows to draw.", "--key"),
        ("activity", ["weight"], ["user_id=b"], "gold.activity has only null to draw.", "--measure"),
    ],
)
def test_what_cannot_be_drawn(
    lake: Settings, name: str, measures: list[str], keys: list[str], error: str, hint: str
) -> None:
    with pytest.raises(LakeproofError) as caught:
        read_plot(lake, name, measures, keys, 5)
    assert error in caught.value.message
    assert hint in caught.value.hint


def test_a_product_without_keys_has_one_line_and_one_without_numbers_none(tmp_path: Path) -> None:
    text = "name: hours\nsilver: events\nkeys: []\nwindow: {size: 1 hour}\nmeasures:\n  events: count(*)\n"
    rows = [{key: value for key, value in row(hour, "a", "view", hour).items() if key in text} for hour in (0, 1)]
    rows = [each | {"window_start": NOON + hour * HOUR, "window_end": NOON} for hour, each in enumerate(rows)]
    settings = lake_with(tmp_path, text, rows)
    assert read_plot(settings, "hours", [], [], 5).panels == (
        Panel("events", (Line("all", at(0, 1), (0.0, 1.0)),), from_zero=True),
    )
    with pytest.raises(UsageError) as caught:
        read_plot(settings, "hours", [], ["x=1"], 5)
    assert caught.value.hint == "The product has no keys."
    (settings.gold / "hours.yaml").write_text(text.replace("count(*)", "max(user_id)"))
    with pytest.raises(UsageError, match="hours has no measure that is a number"):
        read_plot(settings, "hours", [], [], 5)


def test_a_product_that_is_not_filled_yet(tmp_path: Path) -> None:
    settings = lake_with(tmp_path, PRODUCT, None)
    lake = sqlite_path(settings.catalog.uri)
    assert lake
    lake.unlink(missing_ok=True)
    with pytest.raises(LakeproofError, match=r"gold\.activity does not exist yet") as caught:
        read_plot(settings, "activity", [], [], 5)
    assert caught.value.hint == "Run `consumer run events`."
    assert not lake.exists(), "a look creates no lake"


def test_in_the_terminal(run: Callable[..., Any]) -> None:
    done = run("--measure", "events", "--top", "2")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == (
        "gold.activity, windows of 1 hour: 2 of 5 keys, with the greatest events; 2026-11-20 12:00 to 2026-11-20 14:00 "
        "UTC"
    )
    assert max(map(len, lines[1:])) <= 70
    assert "\x1b" not in done.stdout  # not a terminal
    assert lines[-2:] == ["a: b, view", "b: a, view"]
    canvas = done.stdout.partition("UTC")[2].partition("a: b")[0]
    assert canvas.count("a") == 1
    assert canvas.count("b") == 3
    assert "11:57" in canvas


def axis(values: tuple[float, ...], *, from_zero: bool = True) -> list[str]:
    """Return the labels of the value axis, from the top."""
    line = Line("x", at(*range(len(values))), values)
    drawn = as_text(Plot("title", NOON, NOON + HOUR, (Panel("m", (line,), from_zero),)), 80)
    return [label.strip() for label, bar, _ in (row.partition(" |") for row in drawn.splitlines()) if bar][:11]


@pytest.mark.parametrize(
    ("values", "from_zero", "labels"),
    [
        ((97_030.0, 96_000.0), True, ["100,000", "90,000", "80,000", "10,000", "0"]),
        ((3.0, 1.0), True, ["10", "9", "8", "1", "0"]),
        ((0.0, 0.0), True, ["10", "9", "8", "1", "0"]),
        ((12.5, 2.25), True, ["20", "18", "16", "2", "0"]),
        ((0.25, 0.5), True, ["0.60", "0.54", "0.48", "0.06", "0.00"]),
        ((97_030.0, 96_000.0), False, ["98,000", "97,800", "97,600", "96,200", "96,000"]),
        ((-5.0, 5.0), True, ["14", "12", "10", "-4", "-6"]),
        ((987_654_321.0, 1.0), True, ["1,000M", "900M", "800M", "100M", "0M"]),
        ((3e15, 1.0), True, ["4,000T", "3,600T", "3,200T", "400T", "0T"]),
    ],
)
def test_values_are_round_numbers_for_people_and_counts_begin_at_zero(
    values: tuple[float, ...], from_zero: bool, labels: list[str]
) -> None:
    found = axis(values, from_zero=from_zero)
    assert [*found[:3], *found[-2:]] == labels
    assert len(set(found)) == 11


def test_what_data_can_do_to_a_terminal_is_shown() -> None:
    text = "\u202eb\x1b[31m"
    plot = Plot(f"title {text}", NOON, NOON + HOUR, (Panel("m", (Line("x", at(0, 1), (1.0, 2.0)),)),))
    assert as_text(plot, 80).startswith(r"title \u202eb\x1b[31m;")


def test_in_a_terminal_with_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (Line("x", at(0, 1), (1.0, 2.0)), Line("y", at(0, 1), (2.0, 1.0)))
    plot = Plot("title", NOON, NOON + HOUR, (Panel("m", lines),))
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in as_text(plot, 80)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in as_text(plot, 80)


@pytest.mark.parametrize(
    ("first", "last", "shown"),
    [
        (NOON, NOON, "12:00"),
        (NOON, NOON + timedelta(days=3), "20. 10:33"),
        (NOON, NOON + timedelta(days=400), "26-11-20"),
        (datetime(300, 1, 1, tzinfo=UTC), datetime(9699, 12, 31, tzinfo=UTC), "00-01-01"),
    ],
)
@pytest.mark.parametrize("value", [0.0, -1.0, 1e15, 0.001])
def test_times_and_values_of_any_size(
    tmp_path: Path, first: datetime, last: datetime, shown: str, value: float
) -> None:
    line = Line("$x_1$", tuple(sorted({first, last})), tuple([value] * len({first, last})))
    plot = Plot("_title$", first, last, (Panel("m", (line,)),))
    assert shown in as_text(plot, 30)
    if value == 0:
        write_image(plot, tmp_path / "plot.png")
        assert (tmp_path / "plot.png").stat().st_size > 5_000


def test_to_a_file(run: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "plot.PNG"
    done = run("--output", str(path))
    assert (done.exit_code, done.stdout) == (0, "")
    assert path.read_bytes().startswith(b"\x89PNG")
    before = path.stat().st_size
    assert run("--output", str(path), "--measure", "events").exit_code == 0  # it replaces the file
    assert 0 < path.stat().st_size < before


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_reader_of_the_old_image_sees_no_part_of_the_new_one(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"plot.{kind}"
    path.write_bytes(b"old")
    with path.open("rb") as old:
        write_image(Plot("title", NOON, NOON, (Panel("m", (Line("x", at(0), (1.0,)),)),)), path)
        assert old.read() == b"old"
    assert path.stat().st_size > 1_000
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("plot.txt", "Cannot draw to"),
        ("plot", "unknown kind of file"),
        ("missing/plot.png", "Cannot write .*: No such file or directory"),
        (".png", "unknown kind of file"),
    ],
)
def test_a_file_that_cannot_be_written(tmp_path: Path, name: str, error: str) -> None:
    plot = Plot("title", NOON, NOON, (Panel("m", (Line("x", at(0), (1.0,)),)),))
    with pytest.raises(UsageError, match=error) as caught:
        write_image(plot, tmp_path / name)
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match="requires matplotlib, which is not installed") as caught:
        write_image(Plot("title", NOON, NOON, ()), tmp_path / "plot.png")
    assert "lakeproof[plot]" in caught.value.hint
