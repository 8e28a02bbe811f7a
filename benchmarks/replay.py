"""Replay of dead letters, compared with landing the same records under the right contract."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import (
    ROOT,
    WORK,
    Bars,
    Goal,
    Options,
    Report,
    Sample,
    Side,
    Table,
    machine,
    medians,
    module,
    run_side,
)
from benchmarks.inputs import STREAM, Input, Landed, land
from lakeproof.tables.names import ReplayOutcome
from lakeproof.whatif.forecast import Effect

BACKLOG = "consumer run --available-now"
REPLAY = "consumer replay"
TRY = "lakeproof contract try --all"
SALVAGE = "consumer replay --salvage"
VARIANTS = {"bronze only": False, "silver and gold, too": True}
"""The comparisons, and whether their records have a key."""
_BAD = 0.01
_CUT = 1_000
_AT_LEAST = 0.7
_WRONG = {"value: page_view": "value: pageview", "value: purchase": "value: order"}
_KEY = "        primaryKey: true\n        primaryKeyPosition: 1\n"

ABOUT = [
    "A backlog of files of 1,000 events lands under a contract whose list of event types is wrong on purpose: all of "
    "them become dead letters. Then the contract is put right and applied, and `consumer replay` takes them. Beside "
    "it, in turns, the same files land under the right contract. 1 % of the records are bad by the right contract, "
    "too. *Seconds* is from the start of the stream, when Spark has started, to its end; *whole process* is that of "
    "the command; *processor* is the time that all its processes took of processors, which a shared machine changes "
    "least. *Bronze only* is a contract without a key, which has no silver; otherwise both commands fill silver "
    "and gold as well.",
    f"`{TRY}` forecasts on the lake of dead letters what the replay will do. *As forecast* is whether the table of "
    "attempts then has exactly these dead letters closed and failed, by their sets of reasons before and after.",
    f"`{SALVAGE}` takes {_CUT:,} files, each cut short at some byte, under the contract that they landed under.",
]


@dataclass(frozen=True)
class Lake:
    """Landed files, a right and a wrong contract, and a lake that can be restored to its state before a replay."""

    home: Path
    landed: Landed

    @property
    def right(self) -> dict[str, str]:
        """Environment of a command under the right contract."""
        return self._environment("right", self.home / "lake")

    @property
    def wrong(self) -> dict[str, str]:
        """Environment of a command under the wrong contract."""
        return self._environment("wrong", self.home / "lake")

    @property
    def new(self) -> dict[str, str]:
        """Environment of a command under the right contract, in a lake of its own."""
        return self._environment("right", "{folder}/lake")

    def _environment(self, contracts: str, home: Path | str) -> dict[str, str]:
        return {
            "LAKE_HOME": str(home),
            "LAKE_LANDING": str(self.landed.root),
            "LAKE_CONTRACTS": str(self.home / contracts),
            "LAKE_GOLD": str(self.home / "gold"),
        }

    def keep(self) -> None:
        """Save the current state of the lake."""
        shutil.copytree(self.home / "lake", self.home / "kept")

    def put_back(self) -> None:
        """Restore the saved lake to the same place: tables have absolute paths of their files."""
        shutil.rmtree(self.home / "lake")
        shutil.copytree(self.home / "kept", self.home / "lake")


def run(options: Options) -> Report:
    """Fill lakes with dead letters, then replay them, in turns with the backlog."""
    about_machine = machine()
    landed = land(Input(options.files, invalid=_BAD))
    landed.warm_up()
    found = {name: _compare(landed, options.repeat, with_key=with_key) for name, with_key in VARIANTS.items()}
    salvage = _salvage(land(Input(_CUT, corrupt=1.0)))
    ratios = {name: _ratio(samples) for name, samples in found.items()}
    sides = {name: medians(samples) for name, samples in found.items()}
    return Report(
        name="replay",
        title="Replay of dead letters",
        about=ABOUT,
        goals=[
            *(
                Goal(f"records per second, replay over backlog, {name}", ratio, at_least=_AT_LEAST)
                for name, ratio in ratios.items()
            ),
            *(
                Goal(
                    f"processor time of a record, backlog over replay, {name}",
                    each[BACKLOG].cpu_seconds / each[REPLAY].cpu_seconds,
                    at_least=_AT_LEAST,
                )
                for name, each in sides.items()
            ),
            Goal("replays that were not as forecast", sum(map(_not_as_forecast, found.values())), at_most=0, unit=""),
        ],
        tables=[*(_table(name, each, options.files) for name, each in sides.items()), _table_of_salvage(salvage)],
        machine=about_machine,
        options={"files": options.files, "runs_of_each_side": options.repeat},
        bars=[
            Bars(
                f"{options.files * 1_000:,} records",
                "seconds",
                list(sides),
                {side: [round(each[side].seconds, 2) for each in sides.values()] for side in (BACKLOG, REPLAY, TRY)},
            )
        ],
        raw={name: [sample.as_dict() for sample in samples] for name, samples in found.items()}
        | {SALVAGE: salvage.as_dict()},
    )


def fates_of(forecast: dict[str, Any]) -> Counter[tuple[str, str, str]]:
    """Return a forecast for dead letters in the form of attempts: reasons before, outcome, reasons after."""
    found: Counter[tuple[str, str, str]] = Counter()
    for each in forecast["changes"]:
        outcome = ReplayOutcome.CLOSED if each["change"] == Effect.TO_BRONZE else ReplayOutcome.FAILED
        found[each["reasons"], outcome, each["new_reasons"] or ""] += each["units"]
    return found


def _compare(landed: Landed, repeat: int, *, with_key: bool) -> list[Sample]:
    """Run all sides over one backlog, in turns; return the samples."""
    samples = []
    with _lake(landed, with_key=with_key) as lake:
        run_side(_consumer("fill", lake.wrong, "run", STREAM, "--available-now"))
        contract = lake.home / "right" / f"{STREAM}.yaml"
        trying = ("contract", "try", STREAM, "--with", str(contract), "--all", "--format", "json")
        lake.keep()
        sides = [
            _consumer(BACKLOG, lake.new, "run", STREAM, "--available-now"),
            Side(TRY, _command("lakeproof", *trying), lake.wrong),
            _consumer(REPLAY, lake.right, "replay", STREAM),
        ]
        for turn in range(repeat):
            lake.put_back()
            for side in sides:
                samples.append(sample := run_side(side))
                print(f"  {turn + 1}/{repeat} {side.name}: {sample.seconds:.2f} s", flush=True)
    return samples


def _salvage(cut: Landed) -> Sample:
    with _lake(cut, with_key=False) as lake:
        run_side(_consumer("fill", lake.right, "run", STREAM, "--available-now"))
        return run_side(_consumer(SALVAGE, lake.right, "replay", STREAM, "--salvage"))


@contextmanager
def _lake(landed: Landed, *, with_key: bool) -> Iterator[Lake]:
    """Yield a lake with contracts, but without data."""
    WORK.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="replay-", dir=WORK) as folder:
        home = Path(folder)
        text = (ROOT / "contracts" / f"{STREAM}.yaml").read_text()
        right = text if with_key else text.replace(_KEY, "")
        wrong = right.replace("version: 1.", "version: 0.")
        for value, other in _WRONG.items():
            wrong = wrong.replace(value, other)
        for name, content in (("right", right), ("wrong", wrong)):
            (home / name).mkdir()
            (home / name / f"{STREAM}.yaml").write_text(content)
        (home / "gold").mkdir()
        if with_key:
            shutil.copy(ROOT / "gold" / "user_activity.yaml", home / "gold")
        yield Lake(home, landed)


def _command(program: str, *arguments: str) -> tuple[str, ...]:
    return module("benchmarks.sides.command", program, *arguments)


def _consumer(name: str, environment: dict[str, str], *arguments: str) -> Side:
    return Side(name, _command("consumer", *arguments), environment)


def _ratio(samples: list[Sample]) -> float:
    """Return the records per second of replay over backlog: the median of the turns, whose runs are close in time."""
    times = {name: [each.seconds for each in samples if each.side == name] for name in (BACKLOG, REPLAY)}
    return median(backlog / replay for backlog, replay in zip(times[BACKLOG], times[REPLAY], strict=True))


def _not_as_forecast(samples: list[Sample]) -> int:
    forecasts = [fates_of(each.figures["said"]) for each in samples if each.side == TRY]
    replays = [each.figures["fates"] for each in samples if each.side == REPLAY]
    done = [Counter({(old, outcome, new): units for old, outcome, new, units in fates}) for fates in replays]
    return sum(said != seen for said, seen in zip(forecasts, done, strict=True))


def _table(name: str, sides: dict[str, Sample], files: int) -> Table:
    rows = [
        [
            side,
            f"{sample.seconds:.2f}",
            f"{files * 1_000 / sample.seconds:,.0f}",
            f"{sample.figures['command_seconds']:.2f}",
            f"{sample.cpu_seconds:.2f}",
            f"{sample.peak_rss_mib:,.0f}",
            f"{sample.figures['bronze']:,.0f}",
            f"{sample.figures['dead_letters']:,.0f}",
            f"{sample.figures['bronze_files']:,.0f}",
        ]
        for side, sample in sides.items()
    ]
    columns = ["side", "seconds", "records/s", "whole process, s", "processor, s", "peak MiB", "bronze rows"]
    return Table(name, [*columns, "dead letters", "files of bronze"], rows)


def _table_of_salvage(sample: Sample) -> Table:
    figures = sample.figures
    closed = sum(units for _, outcome, _, units in figures["fates"] if outcome == ReplayOutcome.CLOSED)
    cells = [f"{sample.seconds:.2f}", f"{figures['command_seconds']:.2f}", f"{closed:,}", f"{figures['bronze']:,}"]
    return Table("Salvage", ["side", "seconds", "whole process, s", "batches", "bronze rows"], [[SALVAGE, *cells]])
