"""Five lakes in which something went wrong, for somebody who has the pages alone: ``strangers.py FOLDER``.

Each is a working day before it goes wrong: a few dead letters and duplicates, silver, and a consumer that keeps up.
"""

import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from tests.reader.page.lake import Day, clock, event, good
from tests.reader.page.test_health import passed

from lakeproof.settings import settings_of
from reader.page.command import write_page

ROOT = Path(__file__).parents[3]


def quiet(day: Day, begin: int, end: int) -> None:
    """Normal hours: 200 events, two bad ones, three sent again."""
    for hour in range(begin, end):
        bad = (event(f"bad-{hour}-{number}", clock(hour), event_type=None) for number in range(2))
        day.hour(hour, *good(hour, 200), *good(hour, 3), *bad)


def garbage(day: Day) -> None:
    """A producer sends garbage from 14:00 on."""
    quiet(day, 8, 14)
    for hour in (14, 15, 16):
        bad = (each | {"user_id": 17} if number % 2 else each for number, each in enumerate(good(hour, 200)))
        day.hour(hour, *bad, b'{"user_id": "u1", "event_')


def storm(day: Day) -> None:
    """A producer repeats earlier events from 12:00 on."""
    quiet(day, 8, 12)
    for hour in (12, 13, 14):
        day.hour(hour, *good(11, 200), *good(10, 200), *good(hour, 50))


def behind(day: Day) -> None:
    """The consumer has processed nothing since 11:00."""
    quiet(day, 8, 11)
    day.log()
    for hour in range(11, 17):
        for minute in range(0, 60, 10):
            day.wait(hour + minute / 60, f"{hour}-{minute:02}.json", b"[]")


def lost(day: Day) -> None:
    """A file was skipped, and no table has its records."""
    quiet(day, 8, 10)
    passed(day)


def late(day: Day) -> None:
    """Events of last month arrive from 10:00 on."""
    quiet(day, 8, 10)
    for hour in (10, 11, 12):
        old = (event(f"old-{hour}-{number}", clock(0) - timedelta(days=30)) for number in range(40))
        day.hour(hour, *good(hour, 200), *old)


LAKES: tuple[Callable[[Day], None], ...] = (garbage, storm, behind, lost, late)


def main(folder: Path) -> None:
    """Make the lakes, and write their pages under names that say nothing."""
    for number, make in enumerate(LAKES, 1):
        home = folder / f"lake-{number}"
        made = settings_of({"LAKE_HOME": home, "LAKE_CONTRACTS": ROOT / "contracts", "LAKE_GOLD": ROOT / "gold"})
        make(Day(made))
        write_page(made, (), folder / f"page-{number}.html")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
