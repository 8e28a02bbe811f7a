"""All scenarios, by name, and how one is run."""

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos import faults, kills
from tests.chaos.bench import Bench, BrokenError, NotStruckError
from tests.chaos.grid import Outcome, Row
from tests.chaos.orders import Step
from tests.chaos.servers import Rule

_TRIES = 3
LOCAL, MINIO = "local", "minio"


@dataclass(frozen=True)
class Scenario:
    """What is done to a consumer, and on which storages."""

    name: str
    run: Callable[[Bench], Outcome]
    storages: tuple[str, ...] = (LOCAL, MINIO)


def scenarios(random_kills: int) -> list[Scenario]:
    """All of them, in the order in which they are run."""
    between = (Step.BRONZE_APPENDED, Step.DEAD_LETTERS_APPENDED)
    return [
        *(Scenario(f"killed {step}", kills.at(step)) for step in Step),
        Scenario("killed during the append: manifest there, metadata not", kills.during_append),
        Scenario("killed while the checkpoint's offsets are written", kills.during_checkpoint("offsets")),
        Scenario("killed while the checkpoint's commit is written", kills.during_checkpoint("commits")),
        Scenario("killed and started again at once", kills.restarted),
        Scenario(f"killed at {random_kills} random moments", kills.at_random(random_kills)),
        *(Scenario(f"{step}, checkpoint lost", kills.at_and_lost(step, landing_log=False)) for step in between),
        *(
            Scenario(f"{step}, checkpoint and landing log lost", kills.at_and_lost(step, landing_log=True))
            for step in between
        ),
        Scenario("suspended past its lease, replaced, resumed", faults.suspended),
        Scenario("two consumers at once", faults.two_at_once),
        Scenario("a file landed again under another name", faults.landed_again),
        Scenario("a file with garbage at its end", faults.trailing_garbage),
        Scenario("a file overwritten between crash and restart", faults.overwritten),
        Scenario("catalog database locked for 20 s", faults.catalog_locked),
        Scenario("catalog database gone for 10 s", faults.catalog_gone(at_start=False)),
        Scenario("catalog database gone at a start", faults.catalog_gone(at_start=True)),
        Scenario("disk full", faults.disk_full, (LOCAL,)),
        *(Scenario(name, run, (MINIO,)) for name, run in _through_the_proxy().items()),
    ]


def run_scenario(scenario: Scenario, bench: Bench) -> Row:
    """Run a scenario; one that did not strike is tried again."""
    began = time.monotonic()
    storage = MINIO if bench.options.minio else LOCAL
    outcome = Outcome()
    for _ in range(_TRIES):
        try:
            outcome = scenario.run(bench)
            break
        except NotStruckError as missed:
            outcome = Outcome(notes=[str(missed)])
        except (BrokenError, OSError, subprocess.SubprocessError) as error:
            bench.give_up()
            outcome = Outcome(problems=[f"could not be tried: {error}"])
            break
    return Row(scenario.name, storage, outcome, time.monotonic() - began)


def _through_the_proxy() -> dict[str, Callable[[Bench], Outcome]]:
    return {
        "MinIO killed during an upload": faults.minio_killed(faults.DATA_PUT, "request"),
        "MinIO killed during a commit": faults.minio_killed(faults.METADATA_PUT, "response"),
        "MinIO answers 503 to each third request": faults.disturbed(Rule("refuse", every=3)),
        "MinIO resets each third connection": faults.disturbed(Rule("reset", every=3)),
        "MinIO answers 1 s late": faults.disturbed(Rule("delay", seconds=1.0)),
        "MinIO gets a commit's metadata 10 s late": faults.commit_held_back(killed=False),
        "MinIO gets a commit's metadata late, the consumer is killed": faults.commit_held_back(killed=True),
    }
