"""Results of a benchmark: goals, tables and charts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Goal:
    """A goal and its result.

    Parameters
    ----------
    text
        Description, e.g. ``the usual consumer's time over ours, compact, 5 % bad``.
    figure
        Measured value.
    at_least, at_most
        Limit; exactly one is set.
    unit
        Unit of figure and limit; ``x`` for a ratio.
    """

    text: str
    figure: float
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "x"

    @property
    def met(self) -> bool:
        """Whether the figure is within the limit."""
        above = self.at_least is None or self.figure >= self.at_least
        return above and (self.at_most is None or self.figure <= self.at_most)

    @property
    def limit(self) -> str:
        """The limit as text."""
        return f"≥ {self.at_least:g} {self.unit}" if self.at_least is not None else f"≤ {self.at_most:g} {self.unit}"


@dataclass(frozen=True)
class Table:
    """A table of text cells; all columns but the first are right-aligned."""

    title: str
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Bars:
    """A bar for each side in each group: ``values[side][group]``."""

    title: str
    unit: str
    groups: list[str]
    values: dict[str, list[float]]


@dataclass(frozen=True)
class Lines:
    """A line for each name, with a common horizontal axis."""

    title: str
    x: str
    y: str
    at: list[float]
    values: dict[str, list[float]]
    log_x: bool = False


@dataclass(frozen=True)
class Histogram:
    """Number of values between each edge and the next; marks are named values, such as ``p50``."""

    title: str
    unit: str
    edges: list[float]
    counts: list[int]
    marks: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, title: str, unit: str, values: Sequence[float], marks: dict[str, float], bins: int = 60) -> "Histogram":
        """Count values in bins of equal width."""
        low, high = min(values), max(values)
        width = (high - low) / bins or 1.0
        counts = [0] * bins
        for value in values:
            counts[min(int((value - low) / width), bins - 1)] += 1
        return cls(title, unit, [round(low + index * width, 4) for index in range(bins + 1)], counts, marks)


@dataclass(frozen=True)
class Report:
    """Results of a benchmark run.

    Parameters
    ----------
    name
        Name of the benchmark and its files.
    title
        Headline of its page.
    about
        Paragraphs in Markdown: what was compared, how, and what is not comparable.
    goals, tables
        Contents of the page.
    bars, lines, histograms
        Charts, drawn below each other in this order.
    machine
        See :func:`benchmarks.machine.machine`; taken before the first run.
    options
        Size of the run.
    raw
        Figures behind the tables: of each run, or percentiles where there are thousands.
    """

    name: str
    title: str
    about: list[str]
    goals: list[Goal]
    tables: list[Table]
    machine: dict[str, str]
    options: dict[str, Any]
    bars: list[Bars] = field(default_factory=list)
    lines: list[Lines] = field(default_factory=list)
    histograms: list[Histogram] = field(default_factory=list)
    raw: Any = None
