"""Time from producing a message to reading its row, under a steady load, with all programs on two cores."""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.servers import KafkaServer

from benchmarks.flat_figures import percentile
from benchmarks.freshness_figures import mean, read_notes
from benchmarks.freshness_load import PAUSE_SECONDS, Load, run_load
from benchmarks.freshness_sender import MESSAGES
from benchmarks.harness import (
    WORK,
    Goal,
    Histogram,
    Options,
    Report,
    SideFailedError,
    Table,
    clean_environment,
    machine,
)
from benchmarks.machine import few_cores
from benchmarks.programs import run_program, wait_for
from lakeproof.kafka.offsets import source_name

_CORES = 2
_GROUPS_PER_SECOND = 10
_WARM_UP_SECONDS = 30
_PARTITIONS = 2
_TOPIC = "incoming"
_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
_GOALS = {"p50": 2.0, "p99": 4.0}

ABOUT = [
    f"A producer sends {_GROUPS_PER_SECOND * MESSAGES:,} events a second to a topic of {_PARTITIONS} partitions, a "
    "message each. `consumer run events --data-source kafka --to bronze` takes them with its defaults, and a reader "
    f"asks DuckDB for new rows of bronze through one open session, {PAUSE_SECONDS:g} s after its last answer. All of "
    f"them, the broker too, share {_CORES} cores. A message's time is that from the moment at which the producer hands "
    f"it to its client, with {MESSAGES - 1} others, to the end of the first poll that has its row.",
    f"The first {_WARM_UP_SECONDS} s of the load are not in the figures: the JVM is still compiling.",
]


def run(options: Options) -> Report:
    """Run the load once, for the time in the options."""
    about_machine = machine()
    groups = (_WARM_UP_SECONDS + options.seconds) * _GROUPS_PER_SECOND
    WORK.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="freshness-", dir=WORK) as folder,
        few_cores(_CORES),
        KafkaServer(Path(folder) / "kafka") as kafka,
    ):
        kafka.new_topic(_PARTITIONS, name=_TOPIC)
        busy = _load(Path(folder), kafka, groups)
        sent, polls = (read_notes(Path(folder) / name) for name in ("sent", "polls"))
    try:
        every = ages(sent, polls)
    except ValueError as error:
        raise SideFailedError(str(error)) from error
    warm = every[_WARM_UP_SECONDS * _GROUPS_PER_SECOND * MESSAGES :]
    seconds = {name: percentile(warm, share) for name, share in _SHARES.items()}
    late = [group["at"] - group["due"] for group in sent]
    span = sent[-1]["at"] - sent[0]["at"]
    return Report(
        name="freshness-kafka",
        title="Freshness from Kafka",
        about=ABOUT,
        goals=[
            Goal(f"{name}, produced to read", seconds[name], at_most=limit, unit="s") for name, limit in _GOALS.items()
        ],
        tables=[
            Table(
                "From produced to read, message by message",
                ["seconds", "mean", *_SHARES],
                [
                    [name, f"{mean(values):.2f}", *(f"{percentile(values, share):.2f}" for share in _SHARES.values())]
                    for name, values in {"after the warm-up": warm, "with the warm-up": every}.items()
                ],
            ),
            Table(
                f"Cores in use, of {_CORES}",
                ["program", "cores"],
                [[name, f"{each / span:.2f}"] for name, each in busy.items()],
            ),
        ],
        machine=about_machine,
        options={
            "seconds": options.seconds,
            "messages_a_second": round(len(every) / span),
            "a_group_later_than_due": f"{percentile(late, 0.99):.3f} s (p99)",
        },
        histograms=[Histogram.of("From produced to read", "seconds", warm, seconds)],
        raw={"cpu_seconds": busy},
    )


def ages(sent: Iterable[dict[str, Any]], polls: Iterable[dict[str, Any]], topic: str = _TOPIC) -> list[float]:
    """Return the seconds from produced to read of each message, in the order of the notes.

    Raises
    ------
    ValueError
        A message was never seen, or was seen twice.
    """
    seen: dict[str, float] = {}
    for poll in polls:
        for name, _, rows in poll["seen"]:
            if name in seen or rows != 1:
                raise ValueError(f"{name} was seen twice, or has {rows} rows.")
            seen[name] = poll["at"]
    found = []
    for group in sent:
        for partition, (first, last) in group["places"].items():
            for offset in range(first, last + 1):
                name = source_name(topic, int(partition), offset)
                if name not in seen:
                    raise ValueError(f"{name} was never seen.")
                found.append(seen[name] - group["at"])
    return found


def _load(folder: Path, kafka: KafkaServer, groups: int) -> dict[str, float]:
    """Run all programs until each message has been seen; return the processor time of each during the load."""
    environment = clean_environment(folder) | {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
    command = ("run", "events", "--data-source", "kafka", "--topic", _TOPIC, "--to", "bronze")
    with run_program("consumer", folder, environment, *command) as consumer:
        wait_for(lambda: '"started"' in (folder / "consumer.log").read_text(), [consumer])
        arguments = (_TOPIC, groups, _GROUPS_PER_SECOND)
        seconds, messages = groups / _GROUPS_PER_SECOND, groups * MESSAGES
        load = Load("benchmarks.freshness_sender", "sent", arguments, seconds, messages)
        return run_load(folder, environment, consumer, ("broker", kafka.process.pid), load)
