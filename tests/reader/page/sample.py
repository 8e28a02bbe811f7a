"""A sample lake for the docs site and the browser: its producer sends garbage in its last hours."""

from pathlib import Path

from tests.reader.page.lake import Day, clock, event, good

from lakeproof.settings import Settings, settings_of
from reader.page.command import write_page

ROOT = Path(__file__).parents[3]


def make_sample(settings: Settings) -> None:
    """Fill the tables of the sample lake."""
    day = Day(settings)
    for hour in range(8, 18):
        bad = 60 if hour >= 14 else 3
        wrong = [event(f"bad-{hour}-{number}", clock(hour), user_id=None) for number in range(bad)]
        odd = event(f"odd-{hour}", clock(hour), referrer="https://shop.example")
        day.hour(hour, *good(hour, 150), *list(good(hour, 4)), *wrong, odd, b'{"user_id": "u1", ')


def write_sample_page(home: Path, out: Path) -> None:
    """Make the lake in `home`, and write its page."""
    settings = settings_of({"LAKE_HOME": home, "LAKE_CONTRACTS": ROOT / "contracts", "LAKE_GOLD": ROOT / "gold"})
    make_sample(settings)
    write_page(settings, (), out)
