"""Comparison of sides over the same backlog: a table, and goals as ratios of their times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.harness import Bars, Goal, Sample, SideFailedError, Table

OURS, PERSISTED, USUAL = "lakeproof", "usual consumer, persisted", "usual consumer"
DLT, DUCKDB = "dlt to Iceberg", "DuckDB to Parquet"


@dataclass(frozen=True)
class Truth:
    """Expected results of a backlog according to the producer: bronze rows and dead letters."""

    bronze: int
    dead_letters: int


@dataclass(frozen=True)
class Comparison:
    """The medians of all sides over one backlog."""

    backlog: str
    truth: Truth
    medians: Mapping[str, Sample]

    def ratio(self, over: str, under: str) -> float:
        """Return the ratio of the times of two sides."""
        return self.medians[over].seconds / self.medians[under].seconds

    def table(self) -> Table:
        """Return a table with a row for each side, and a last row with the units made by the producer."""
        columns = ["side", "seconds", f"against {OURS}", "whole process, s", "peak MiB", "JVM", "workers"]
        rows = [
            [
                name,
                f"{sample.seconds:.1f}",
                f"{self.ratio(name, OURS):.2f} x",
                f"{sample.process_seconds:.1f}",
                f"{sample.peak_rss_mib:,.0f}",
                f"{sample.peak.jvm:,.0f}",
                f"{sample.peak.workers:,.0f}",
                f"{sample.figures['bronze']:,.0f}",
                f"{sample.figures['dead_letters']:,.0f}",
                "yes" if self.is_right(name) else "no",
            ]
            for name, sample in self.medians.items()
        ]
        made = ["*made by the producer*", *[""] * 6, f"{self.truth.bronze:,}", f"{self.truth.dead_letters:,}", ""]
        return Table(self.backlog, [*columns, "bronze rows", "dead letters", "as made"], [*rows, made])

    def is_right(self, side: str) -> bool:
        """Return whether a side landed as many units in each table as the producer made for it."""
        figures = self.medians[side].figures
        return (figures["bronze"], figures["dead_letters"]) == (self.truth.bronze, self.truth.dead_letters)

    def goals(self) -> list[Goal]:
        """Return the goals for the sides in this comparison; wrong results of ours meet none."""
        if not self.is_right(OURS):
            found, made = self.medians[OURS].figures, self.truth
            raise SideFailedError(
                f"{self.backlog}: {OURS} landed {found['bronze']:,} + {found['dead_letters']:,} units in bronze and "
                f"dead letters, expected {made.bronze:,} + {made.dead_letters:,}"
            )
        found = [Goal(f"{USUAL} over {OURS}, {self.backlog}", self.ratio(USUAL, OURS), at_least=5)]
        if PERSISTED in self.medians:
            found.append(Goal(f"{PERSISTED} over {OURS}, {self.backlog}", self.ratio(PERSISTED, OURS), at_least=10))
        if DLT in self.medians:
            found.append(Goal(f"{DLT} over {OURS}, {self.backlog}", self.ratio(DLT, OURS), at_least=3))
        if DUCKDB in self.medians:
            found.append(Goal(f"{OURS} over {DUCKDB}, {self.backlog}", self.ratio(OURS, DUCKDB), at_most=3.5))
        return found


def bars(title: str, comparisons: Sequence[Comparison]) -> Bars:
    """Return a group of bars for each backlog."""
    sides = comparisons[0].medians
    values = {side: [round(comparison.medians[side].seconds, 2) for comparison in comparisons] for side in sides}
    return Bars(title, "seconds", [comparison.backlog for comparison in comparisons], values)
