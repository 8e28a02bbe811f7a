"""Draw a report with matplotlib, which is imported only here."""

from pathlib import Path
from typing import Any

from benchmarks.figures import Bars, Histogram, Lines, Report

_WIDTH, _HEIGHT, _DPI = 9.0, 3.6, 110


def draw(report: Report, path: Path) -> None:
    """Draw the charts of a report as one PNG; without charts, write nothing."""
    parts: list[Bars | Lines | Histogram] = [*report.bars, *report.lines, *report.histograms]
    if not parts:
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT * len(parts)), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    for index, part in enumerate(parts):
        axes = figure.add_subplot(len(parts), 1, index + 1)
        axes.set_title(part.title, loc="left", fontsize=10)
        match part:
            case Bars():
                _bars(axes, part)
            case Lines():
                _lines(axes, part)
            case Histogram():
                _histogram(axes, part)
    # Omit the matplotlib version: the same figures give the same bytes.
    figure.savefig(path, metadata={"Software": None})


def _bars(axes: Any, bars: Bars) -> None:
    width = 0.8 / max(len(bars.values), 1)
    for index, (side, values) in enumerate(bars.values.items()):
        at = [group + index * width for group in range(len(values))]
        drawn = axes.bar(at, values, width, label=side)
        axes.bar_label(drawn, fmt="{:.3g}", fontsize=7)
    middle = 0.4 - width / 2
    axes.set_xticks([group + middle for group in range(len(bars.groups))], bars.groups)
    axes.set_ylabel(bars.unit)
    axes.legend(fontsize=8)


def _lines(axes: Any, lines: Lines) -> None:
    for name, values in lines.values.items():
        axes.plot(lines.at, values, marker="o", label=name)
    axes.set_xscale("log" if lines.log_x else "linear")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(lines.x)
    axes.set_ylabel(lines.y)
    axes.legend(fontsize=8)


def _histogram(axes: Any, histogram: Histogram) -> None:
    axes.stairs(histogram.counts, histogram.edges, fill=True, color="tab:blue")
    for name, value in histogram.marks.items():
        axes.axvline(value, color="tab:red", linewidth=1)
        axes.annotate(f"{name} {value:.2f}", (value, 0.95), xycoords=("data", "axes fraction"), rotation=90, fontsize=8)
    axes.set_xlabel(histogram.unit)
    axes.set_ylabel("how often")
