"""Lakes for the page: hours of events, judged and decided without Spark."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

from tests.reader.verify.silver.lakes import SilverLake

from lakeproof.settings import Settings
from lakeproof.state.landing_log import LandingLog
from lakeproof.storage.local import local_path

TODAY = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=20)
FIRST = 8  # o'clock, on the day that starts at TODAY
Event = dict[str, Any]


def clock(hour: float) -> datetime:
    """Return a time of the day."""
    return TODAY + timedelta(hours=hour)


def event(key: str, at: datetime, **changes: Any) -> Event:
    """Return a valid event; a change to None removes a field."""
    made = {"user_id": f"u{hash(key) % 7}", "event_id": key, "event_timestamp": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
    made |= {"event_type": "page_view", "properties": {"a": 1}}
    return {name: value for name, value in (made | changes).items() if value is not None}


class Day(SilverLake):
    """A day of events, with a micro-batch each hour."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, landed=())
        self.batches = 0

    def hour(self, hour: float, *events: Event | bytes, decided: bool = True) -> None:
        """Land some events in a file at a time of the day, and consume them; bytes land as they are."""
        whole = b"\n".join(each if isinstance(each, bytes) else json.dumps(each).encode() for each in events)
        name = f"{self.batches:03}.json"
        self.wait(hour, name, whole)
        self.consume(micro_batch=self.batches, at=clock(hour))
        self.batches += 1
        if decided:
            self.decide(self.batches - 1, self.batches)

    def wait(self, hour: float, name: str, content: bytes) -> None:
        """Land a file at a time of the day, and do not consume it."""
        self.land({name: content})
        os.utime(local_path(self.uri(name)), (clock(hour).timestamp(),) * 2)

    def log(self) -> LandingLog:
        """Return the landing log with all landed files."""
        log = LandingLog(self.settings.state.database, "events")
        log.append(self.zone.files())
        return log


class Text(HTMLParser):
    """Parser for a page's visible text, its IDs, and everything that could act."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self._hidden = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = {name: value or "" for name, value in attrs}
        self.attributes += given.items()
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "a":
            self.links.append(given["href"])
        if tag in ("script", "style"):
            self._hidden = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._hidden:
            self._hidden = ""

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.words.append(data)

    @property
    def text(self) -> str:
        """Return the whole text, with single spaces."""
        return " ".join(" ".join(self.words).split())


def good(hour: int, count: int = 100) -> Iterator[Event]:
    """Return valid events of an hour."""
    return (event(f"{hour}-{number}", clock(hour) + timedelta(seconds=number)) for number in range(count))
