"""Silver and gold as their tables grow: a micro-batch of silver, and late rows in a product with many windows."""

from collections.abc import Mapping

from benchmarks.flat import ratio
from benchmarks.harness import Goal, Lines, Options, Report, Side, Table, machine, module, run_side

_AT_MOST = 1.5
_ROWS_OF_A_FILE = 50
STRATEGIES = ("state", "merge")
_Figures = Mapping[str, Mapping[str, float]]

ABOUT = [
    "*Micro-batches*: silver decides 2,000 rows of bronze, 5 % of them with keys that it has, when it has kept so "
    "many rows before. All of those are within the horizon of 7 days. Medians of 5, from the look for new rows to the "
    "commit of silver. *First* is the first one after silver got these rows: with `state` it adds them to the key "
    "index, as after its loss.",
    "*Late rows*: 100 rows, each in another window of `gold.user_activity`, after silver has got them; medians of 3. "
    "*Data* is the new data files and deletion vectors, *metadata* all that Iceberg writes for a commit. DuckDB then "
    "counts all windows, users and events, and finds each late row counted.",
]


def run(options: Options) -> Report:
    """Run the benchmark once; sizes are multiples of the number of files in the options, with 50 rows each."""
    about_machine = machine()
    sizes = [options.files * _ROWS_OF_A_FILE * times for times in (1, 10, 100)]
    windows = options.files * 1_000
    silver: dict[str, _Figures] = {
        strategy: run_side(Side(f"history {strategy}", module("benchmarks.sides.history", strategy, *sizes))).figures[
            "sizes"
        ]
        for strategy in STRATEGIES
    }
    late = run_side(Side("late rows", module("benchmarks.sides.late_rows", windows))).figures
    return Report(
        name="history",
        title="Silver and gold as their history grows",
        about=ABOUT,
        goals=[
            Goal(
                "micro-batch of silver, `state`: 100 times the history",
                ratio(silver["state"], "p50_s"),
                at_most=_AT_MOST,
            )
        ],
        tables=[
            Table(
                "Micro-batches of silver",
                ["strategy", "rows before", "p50, s", "slowest, s", "first, s", "times the smallest"],
                [
                    [
                        strategy,
                        f"{int(size):,}",
                        *(f"{figures[name]:.2f}" for name in ("p50_s", "max_s", "first_s")),
                        f"{figures['p50_s'] / next(iter(found.values()))['p50_s']:.2f}",
                    ]
                    for strategy, found in silver.items()
                    for size, figures in found.items()
                ],
            ),
            Table(
                f"100 late rows in {windows:,} windows",
                ["days touched", "seconds", "data, bytes", "metadata, bytes", "DuckDB reads all, s"],
                [
                    [
                        days,
                        f"{figures['seconds']:.2f}",
                        f"{figures['data_bytes']:,.0f}",
                        f"{figures['metadata_bytes']:,.0f}",
                        f"{figures['duckdb_s']:.2f}",
                    ]
                    for days, figures in late["days"].items()
                ],
            ),
        ],
        machine=about_machine,
        options={"rows": sizes, "windows": windows},
        lines=[
            Lines(
                "A micro-batch of silver, p50",
                "rows before",
                "s",
                [float(size) for size in sizes],
                {strategy: [round(one["p50_s"], 3) for one in found.values()] for strategy, found in silver.items()},
                log_x=True,
            )
        ],
        raw={"silver": silver, "late": late},
    )
