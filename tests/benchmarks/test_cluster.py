"""The figures of a backlog on cores and workers."""

from benchmarks.cluster import MASTERS, _cpu, _phases, _summary
from benchmarks.harness import PeakMemory, Sample

_START = {"phase": "start", "seconds": 5.0, "micro_batches": 0, "cpu": {"driver": 1.0, "jvm": 4.0}}


def sample(side: str, seconds: float) -> Sample:
    bronze = {"phase": "bronze-events", "seconds": seconds, "micro_batches": 1, "compute": 3.0, "commit": 1.0}
    counts = {"bronze": 1_000, "silver": 900, "gold": 10}
    phases = [_START, bronze | {"cpu": {"driver": 1.0, "jvm": 2.0, "executors": 0.5, "tasks": 4.0}}]
    return Sample(side, seconds, seconds + 5, PeakMemory(), {"phases": phases} | counts)


def test_efficiency_is_by_core_and_the_start_does_not_count() -> None:
    seconds = {"local[1]": 10.0, "local[2]": 5.0, "one worker": 20.0, "two workers": 20.0}
    runs = {side: [sample(side, seconds[side])] for side in MASTERS}
    efficiencies = {row[0]: row[3] for row in _summary(runs).rows}
    assert efficiencies == {"local[1]": "100%", "local[2]": "100%", "one worker": "100%", "two workers": "50%"}
    assert _cpu(runs["one worker"]) == 7.5


def test_a_phase_without_micro_batches_has_no_parts() -> None:
    start, bronze = _phases({"one worker": [sample("one worker", 20.0)]}).rows
    assert start[1:6] == ["start", "", "5.0", "", ""]
    assert bronze[1:] == ["bronze-events", "1", "20.0", "3.0", "1.0", "1.0", "2.0", "0.5", "4.0"]
