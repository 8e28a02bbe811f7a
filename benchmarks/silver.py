"""One large micro-batch of silver, decided in the driver and in tasks."""

from collections.abc import Mapping, Sequence

from benchmarks.harness import Goal, Options, Report, Side, SideFailedError, Table, machine, measure, medians, module

_ROWS_OF_A_FILE = 1_000
_TIMES = (1, 5, 20)
_DUPLICATES, _STORM = 0.05, 0.9
_MOST = 1_000_000_000
_DECIDING = {"driver": _MOST, "tasks": 0}
"""Values of LAKE_SILVER_DRIVER_ROWS, by place of the decision."""
_Figures = Mapping[str, float] | None

ABOUT = [
    "One micro-batch of silver with the strategy `merge`, in files of bronze of 500,000 rows. Silver has half as many "
    "rows within the horizon. 5 % of the rows, or 90 %, have keys that silver or earlier rows have. *Seconds* is from "
    "the look for new rows to the commit of silver; *processor* is what each part took meanwhile, *peak* its highest "
    "resident memory, which counts shared memory for each process. Another process makes the tables, without JSON. "
    "The driver's JVM has 8 GB of heap, since with 2 GB, the default, it is out of memory when the driver decides "
    "5,000,000 rows. Sides that failed have no figures.",
]


def run(options: Options) -> Report:
    """Run both at each size; sizes are multiples of the number of files in the options, with 1,000 rows each."""
    about_machine = machine()
    smallest = options.files * _ROWS_OF_A_FILE
    cases = [(smallest * times, _DUPLICATES) for times in _TIMES] + [(smallest, _STORM)]
    found: dict[tuple[int, float, str], _Figures] = {
        (rows, duplicates, who): _figures(rows, duplicates, who, options.repeat)
        for rows, duplicates in cases
        for who in _DECIDING
    }
    return Report(
        name="silver",
        title="Silver in tasks",
        about=ABOUT,
        goals=_goals([smallest * times for times in _TIMES], found),
        tables=[
            Table(
                "A micro-batch of silver",
                ["decided in", "rows", "duplicates", "seconds", *_COLUMNS],
                [
                    [who, f"{rows:,}", f"{duplicates:.0%}", *_cells(figures)]
                    for (rows, duplicates, who), figures in found.items()
                ],
            )
        ],
        machine=about_machine,
        options={"rows": [rows for rows, _ in cases], "runs_of_each_side": options.repeat},
        raw=[
            {"rows": rows, "duplicates": duplicates, "decided_in": who, "figures": figures}
            for (rows, duplicates, who), figures in found.items()
        ],
    )


_COLUMNS = {
    "driver's Python, processor s": "driver_cpu",
    "JVM, processor s": "jvm_cpu",
    "tasks, processor s": "workers_cpu",
    "driver's Python, peak MiB": "driver_mib",
    "JVM, peak MiB": "jvm_mib",
    "tasks, peak MiB": "workers_mib",
}


def _figures(rows: int, duplicates: float, who: str, repeat: int) -> _Figures:
    environment = {
        "LAKE_SILVER_DRIVER_ROWS": str(_DECIDING[who]),
        "LAKE_MAX_ROWS_PER_SILVER_MICRO_BATCH": str(_MOST),
        "LAKE_DRIVER_MEMORY": "8g",
    }
    side = Side(f"{rows:,} in {who}", module("benchmarks.sides.silver", rows, duplicates), environment)
    try:
        return medians(measure([side], repeat))[side.name].figures
    except SideFailedError as error:
        print(f"  {error}", flush=True)
        return None


def _cells(figures: _Figures) -> list[str]:
    if figures is None:
        return ["failed", *[""] * len(_COLUMNS)]
    names = {"seconds": 2, **{name: 0 if name.endswith("mib") else 2 for name in _COLUMNS.values()}}
    return [f"{figures[name]:,.{digits}f}" for name, digits in names.items()]


def _goals(sizes: Sequence[int], found: Mapping[tuple[int, float, str], _Figures]) -> list[Goal]:
    """Return the goals at the largest size that both have decided."""
    for rows in sorted(sizes, reverse=True):
        driver, tasks = found[rows, _DUPLICATES, "driver"], found[rows, _DUPLICATES, "tasks"]
        if driver and tasks:
            return [
                Goal(f"{text}, {rows:,} rows: in tasks over in the driver", tasks[name] / driver[name], at_most=limit)
                for text, name, limit in (
                    ("seconds", "seconds", 1.0),
                    ("driver's Python, processor", "driver_cpu", 0.3),
                )
            ]
    return []
