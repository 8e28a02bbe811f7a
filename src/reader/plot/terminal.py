"""Draw a plot in the terminal."""

from collections.abc import Callable
from datetime import datetime, timedelta
from string import ascii_lowercase

from plotille import Figure

from reader.plot.series import Panel, Plot

_HEIGHT = 10
"""Lines of a panel."""
_MARGIN = 24
"""Columns beside the canvas: the values of the axis."""
_COLORS = ("blue", "red", "green", "magenta", "cyan", "yellow", "white")


def as_text(plot: Plot, width: int) -> str:
    """Draw a plot as lines of text. Where there are several lines, each has a letter, and on a terminal a color.

    Parameters
    ----------
    plot
        What is drawn.
    width
        Columns of the terminal.
    """
    first, last = (f"{time:%Y-%m-%d %H:%M}" for time in (plot.first, plot.last))
    parts = [f"{plot.title}; {first} to {last} UTC"]
    parts += [_panel(panel, plot, width) for panel in plot.panels]
    labels = [line.label for line in plot.panels[0].lines]
    if len(labels) > 1:
        parts.append("\n".join(f"{_name(index)}: {label}" for index, label in enumerate(labels)))
    return "\n\n".join(parts) + "\n"


def _panel(panel: Panel, plot: Plot, width: int) -> str:
    figure = Figure()
    figure.width, figure.height = max(width - _MARGIN, 20), _HEIGHT
    figure.x_label, figure.y_label = "UTC", panel.measure
    figure.set_x_limits(*plot.limits)
    figure.register_label_formatter(datetime, _time_format(plot.last - plot.first))
    figure.register_label_formatter(float, _value_format)
    for index, line in enumerate(panel.lines):
        color = _COLORS[index % len(_COLORS)]
        marker = _name(index) if len(panel.lines) > 1 else None
        draw = figure.scatter if line.is_points else figure.plot
        draw(line.times, line.values, lc=color, marker=marker)
    return str(figure.show())


def _time_format(span: timedelta) -> Callable[..., str]:
    """Formats times such that they differ, in the columns that an axis has for each."""
    form = "%H:%M" if span <= timedelta(days=1) else "%d. %H:%M" if span <= timedelta(days=14) else "%y-%m-%d"

    def formatted(value: datetime, chars: int, delta: object, left: bool = False) -> str:  # noqa: ARG001 - plotille's
        text = value.strftime(form)
        return text.ljust(chars) if left else text.rjust(chars)

    return formatted


def _value_format(value: float, chars: int, delta: object, left: bool = False) -> str:  # noqa: ARG001 - plotille's
    text = f"{value:.4g}"
    return text.ljust(chars) if left else text.rjust(chars)


def _name(index: int) -> str:
    """The letter of a line."""
    return ascii_lowercase[index % len(ascii_lowercase)]
