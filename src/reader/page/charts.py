"""Charts as static SVG by Vega-Lite; without its package, the page has only tables."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from reader.dead_letters.places import shown
from reader.page.model import Hour
from reader.plot.series import Panel, Plot

if TYPE_CHECKING:
    from types import ModuleType

HINT = 'Charts need a package: pip install "lakeproof[page]".'
_WIDTH, _HEIGHT = 300, 110
_LABEL = 20  # characters
_COLORS = ("#3b82c4", "#d9822b", "#3f9e6e", "#a368c9", "#c2566b")
_BAD, _REST = "#d0453f", "#7f97ad"
_APART = {"duplicates": "#a8a29a", "conflicts": "#d9822b", "late": "#8f6fc4"}
_INK = "currentColor"
_CONFIG = {
    "aria": False,  # the chart has one role and one title, and a table next to it has its numbers
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": _INK, "titleColor": _INK, "domainColor": _INK, "tickColor": _INK, "gridColor": _INK,
        "gridOpacity": 0.15, "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal",
    },
    "legend": {
        "labelColor": _INK, "title": None, "orient": "bottom", "columns": 2, "labelFontSize": 11, "labelLimit": 130,
    },
    "range": {"category": list(_COLORS)},
}  # fmt: skip
_TIME = {
    "labelAngle": 0,
    "tickCount": 3,
    "title": None,
    "labelOverlap": "greedy",
    "labelSeparation": 12,
    "format": "%m-%d %H:%M",
}
_ROLES = re.compile(r' (?:role|aria-[a-z]+)="[^"]*"')  # roles of parts; only the whole chart has a role
_SIZE = re.compile(r' width="(\d+(?:\.\d+)?)" height="(\d+(?:\.\d+)?)"')


@cache
def _vega() -> "ModuleType | None":
    try:
        import vl_convert
    except ImportError:
        return None
    return vl_convert


def available() -> bool:
    """Return whether charts can be drawn."""
    return _vega() is not None


def by_hour(hours: Sequence[Hour], key: str) -> Markup:
    """Return a chart of units by hour, with separate colors for those that are not kept."""
    kinds = {name: color for name, color in _APART.items() if any(getattr(each, name) for each in hours)}
    rest = "rest of bronze" if kinds else "bronze"
    colors = {rest: _REST, **kinds, "dead letters": _BAD}
    values = []
    for each in hours:
        apart = {name: getattr(each, name) for name in kinds}
        counts = [max(each.units - each.letters - sum(apart.values()), 0), *apart.values(), each.letters]
        values += [
            {"t": each.begin.isoformat(), "n": count, "k": kind, "o": order}
            for order, (kind, count) in enumerate(zip(colors, counts, strict=True))
        ]
    domain = {"domain": list(colors), "range": list(colors.values())}
    spec = _spec(values, {"type": "bar"}, "units")
    spec["encoding"] |= {"color": {"field": "k", "type": "nominal", "scale": domain}, "order": {"field": "o"}}
    spec["encoding"]["x"] |= {
        "timeUnit": {"unit": "utcyearmonthdatehours"},
        "bandPosition": 0,
        "axis": _TIME | {"tickMinStep": 3_600_000},
    }
    return _svg(spec, key, "Units by hour of landing", f"{len(hours)} hours; the numbers are in the table below.")


def trend(hours: Sequence[tuple[datetime, int]], first: datetime, last: datetime, key: str, title: str) -> Markup:
    """Return a small chart of dead letters by hour, with the same time axis for each reason, without a library."""
    span = max((last - first).total_seconds() / 3600 + 1, 1)
    most = max((count for _, count in hours), default=1)
    width = max(min(120 / span, 12), 1.2)
    bars = Markup("").join(
        Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
            (hour - first).total_seconds() / 3600 / span * (120 - width), 24 - height, width * 0.8, height
        )
        for hour, count in hours
        for height in (max(count / most * 24, 1.0),)
    )
    return Markup(
        '<svg class="trend" viewBox="0 0 120 24" role="img" aria-labelledby="{0}"><title id="{0}">{1}</title>{2}</svg>'
    ).format(key, title, bars)


def plotted(plot: Plot, key: str) -> Sequence[Markup]:
    """Return a chart for each panel of a plot."""
    return [_panel(plot, panel, f"{key}-{number}") for number, panel in enumerate(plot.panels)]


def _panel(plot: Plot, panel: Panel, key: str) -> Markup:
    values = [
        {"t": time.isoformat(), "n": value, "k": _label(line.label), "p": line.is_points}
        for line in panel.lines
        for time, value in zip(line.times, line.values, strict=True)
    ]
    spec = _spec(values, {"type": "line", "point": {"size": 14}}, panel.measure, zero=panel.from_zero)
    spec["encoding"] |= {"color": {"field": "k", "type": "nominal", "sort": None}}
    if any(line.is_points for line in panel.lines):
        spec["layer"] = [
            {"mark": {"type": "line", "strokeWidth": 1}, "transform": [{"filter": "!datum.p"}]},
            {"mark": {"type": "point", "size": 50}, "transform": [{"filter": "datum.p"}]},
        ]
        del spec["mark"]
    return _svg(spec, key, f"{plot.title}: {panel.measure}", f"{len(panel.lines)} lines by {plot.time}, UTC.")


def _label(text: str) -> str:
    text = shown(text)
    return text if len(text) <= _LABEL else f"{text[:_LABEL]}…"


def _spec(
    values: Sequence[Mapping[str, Any]], mark: Mapping[str, Any], title: str, *, zero: bool = True
) -> dict[str, Any]:
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": _WIDTH,
        "height": _HEIGHT,
        "data": {"values": values},
        "mark": mark,
        "encoding": {
            "x": {"field": "t", "type": "temporal", "scale": {"type": "utc"}, "axis": _TIME},
            "y": {"field": "n", "type": "quantitative", "title": _label(title), "scale": {"zero": zero},
                  "axis": {"tickCount": 4, "format": "~s"}},
        },
        "config": _CONFIG,
    }  # fmt: skip


def _svg(spec: Mapping[str, Any], key: str, title: str, description: str) -> Markup:
    """Draw a chart; return empty markup without the library. Vega escapes texts for SVG after :func:`shown`."""
    vega = _vega()
    if vega is None:
        return Markup("")
    drawn: str = vega.vegalite_to_svg(json.dumps(spec), allowed_base_urls=[])
    body = _ROLES.sub("", drawn[drawn.index(">") + 1 :])
    width, height = _SIZE.search(drawn).groups()  # type: ignore[union-attr]
    return Markup(  # noqa: S704 - what Vega has escaped
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-labelledby="{key}-t {key}-d">'
        f'<title id="{key}-t">{escape(shown(title))}</title>'
        f'<desc id="{key}-d">{escape(shown(description))}</desc>{body}'
    )
