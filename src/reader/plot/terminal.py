"""Draw a plot in the terminal."""

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from string import ascii_lowercase

from plotille import Figure

from lakeproof.standard_streams import printable
from reader.plot.series import Panel, Plot

_HEIGHT = 10  # lines of a panel
_MARGIN = 24  # columns for the labels of the axis
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"))  # for numbers of at least ten units
_MORE = 1.1
_COLORS = ("blue", "red", "green", "magenta", "cyan", "yellow", "white")


def as_text(plot: Plot, width: int) -> str:
    """Draw a plot as text. Several lines are marked by letters, and by colors on a terminal."""
    first, last = (f"{time:%Y-%m-%d %H:%M}" for time in (plot.first, plot.last))
    parts = [printable(f"{plot.title}; {first} to {last} UTC")]
    parts += [_panel(panel, plot, width) for panel in plot.panels]
    labels = [line.label for line in plot.panels[0].lines]
    if len(labels) > 1:
        parts.append("\n".join(f"{_name(index)}: {label}" for index, label in enumerate(labels)))
    return "\n\n".join(parts) + "\n"


def _panel(panel: Panel, plot: Plot, width: int) -> str:
    figure = Figure()
    figure.width, figure.height = max(width - _MARGIN, 20), _HEIGHT
    figure.x_label, figure.y_label = "UTC", panel.measure
    base, step = _axis([value for line in panel.lines for value in line.values], from_zero=panel.from_zero)
    figure.set_y_limits(base, base + _HEIGHT * step)
    figure.set_x_limits(*plot.limits)
    figure.register_label_formatter(datetime, _time_format(plot.last - plot.first))
    figure.register_label_formatter(float, _value_format(base, step))
    for index, line in enumerate(panel.lines):
        color = _COLORS[index % len(_COLORS)]
        marker = _name(index) if len(panel.lines) > 1 else None
        draw = figure.scatter if line.is_points else figure.plot
        draw(line.times, line.values, lc=color, marker=marker)
    return str(figure.show())


def _time_format(span: timedelta) -> Callable[..., str]:
    """Return a formatter for times on the axis, so that they differ and fit."""
    form = "%H:%M" if span <= timedelta(days=1) else "%d. %H:%M" if span <= timedelta(days=14) else "%y-%m-%d"

    def formatted(value: datetime, chars: int, delta: object, left: bool = False) -> str:  # noqa: ARG001 - plotille's
        text = value.strftime(form)
        return text.ljust(chars) if left else text.rjust(chars)

    return formatted


def _axis(values: Sequence[float], *, from_zero: bool) -> tuple[float, float]:
    """Return start and round step of an axis that contains all values."""
    least, most = min(values, default=0.0), max(values, default=0.0)
    begins_at_zero = from_zero and least >= 0
    step = _round_up(((most if begins_at_zero else most - least) or abs(most) or 1.0) / _HEIGHT)
    if begins_at_zero and all(value.is_integer() for value in values):
        step = max(step, 1.0)
    while True:
        base = 0.0 if begins_at_zero else math.floor(least / step) * step
        if base + _HEIGHT * step > most:  # values at the very top are not drawn
            return base, step
        step = _round_up(step * _MORE)


def _round_up(number: float) -> float:
    """Round up to a number with one nonzero digit."""
    power = math.floor(math.log10(number))
    digit = math.ceil(round(number / 10.0**power, 9))
    return float(f"{digit}e{power}")


def _value_format(base: float, step: float) -> Callable[..., str]:
    """Return a formatter for values on the axis: 97,030, or 97M if too long."""
    most = max(abs(base), abs(base + _HEIGHT * step))
    unit, name = next(((unit, name) for unit, name in _UNITS if most >= 10 * unit), (1.0, ""))
    decimals = max(-math.floor(math.log10(step / unit)), 0)

    def formatted(value: float, chars: int, delta: object, left: bool = False) -> str:  # noqa: ARG001 - plotille's
        text = f"{round(value / unit, decimals) + 0.0:,.{decimals}f}{name}"
        if len(text) > chars:
            text = f"{value:.3g}"
        return text.ljust(chars) if left else text.rjust(chars)

    return formatted


def _name(index: int) -> str:
    """Return the letter of a line."""
    return ascii_lowercase[index % len(ascii_lowercase)]
