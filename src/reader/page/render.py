"""Render the page: all text except our own markup is escaped, and unprintable characters are made visible."""

import base64
import hashlib
import re
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from lakeproof.wording import count_of
from reader.dead_letters.places import shown
from reader.page import charts
from reader.page.flow import WIDTH, flow
from reader.page.model import Page

_CODE = re.compile("`([^`]+)`")
_MOST = 2_000  # characters of a text
_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def render(page: Page, *, live: bool = False) -> str:
    """Return the page as HTML. With `live`, numbers link to their rows, and the page refreshes itself."""
    return _template("page.html.j2").render(page=page, live=live, csp=policy(live=live), at=page.made_at, **_assets())


def render_rows(**told: Any) -> str:
    """Return a page with rows, the path of an event, or an error as HTML."""
    return _template("rows.html.j2").render(live=True, csp=policy(live=True), **_assets(), **told)


def policy(*, live: bool) -> str:
    """Return the Content-Security-Policy: it allows our own style and script by hash, and no other origin."""
    style, script = (_hash(text) for text in _assets().values())
    own = "; connect-src 'self'; form-action 'self'" if live else "; form-action 'none'"
    return f"default-src 'none'; style-src {style}; script-src {script}; base-uri 'none'{own}"


def visible(value: object, most: int = _MOST) -> object:
    """Return a text with visible codes for unprintable characters; a long text is cut, and its length appended."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return "" if value is None else value
    cut = f"… ({len(value):,} characters)" if len(value) > most else ""
    return shown(value[:most]) + cut


def _ago(since: datetime, at: datetime) -> str:
    seconds = max(int((at - since).total_seconds()), 0)
    unit, length = next((each for each in _UNITS if seconds >= each[1]), _UNITS[-1])
    return f"{count_of(seconds // length, unit)} ago"


def _time(value: datetime | None) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S}" if value else "none"


def _bytes(value: int) -> str:
    from rich.filesize import decimal

    return decimal(value) if value >= 0 else f"-{decimal(-value)}"


def _seconds(begin: datetime | None, end: datetime | None) -> str:
    return "" if begin is None or end is None else f"{max(end - begin, timedelta()).total_seconds():,.1f}"


def _coded(text: str) -> Markup:
    """Return one of our own texts as markup, with commands in backticks as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(visible(text)))))  # noqa: S704 - escaped


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("reader.page"),
        autoescape=True,
        finalize=visible,  # applied to each value that a template writes, before escaping
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "n": lambda value: f"{value:,}", "time": _time, "ago": _ago, "bytes": _bytes, "cut": visible, "coded": _coded,
    }  # fmt: skip
    environment.globals |= {
        "charts": charts, "count_of": count_of, "flow": flow, "flow_width": WIDTH, "seconds": _seconds,
    }  # fmt: skip
    return environment


def _template(name: str) -> Template:
    return _environment().get_template(name)


@cache
def _assets() -> dict[str, Markup]:
    folder = files("reader.page") / "templates"
    return {key: Markup((folder / name).read_text()) for key, name in (("style", "page.css"), ("script", "page.js"))}  # noqa: S704


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
