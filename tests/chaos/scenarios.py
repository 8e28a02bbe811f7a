"""All scenarios by name, and a function that runs one."""

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from tests.chaos import breakers, clusters, faults, kills, layers, maintained, operations, replays
from tests.chaos.bench import Bench, BrokenError, Catalog, NotStruckError
from tests.chaos.grid import Outcome, Row
from tests.chaos.kafka import brokers, modes, sinks
from tests.chaos.lake import GOLD, OF_LAYERS, PRODUCT, SILVER, STREAM, TABLES
from tests.chaos.orders import LAYER_STEPS, MAINTENANCE_STEPS, OF_BRONZE_STEPS, REPLAY_STEPS, SINK_STEPS, Step
from tests.chaos.replays import By
from tests.chaos.servers import Rule

from lakeproof.errors import LakeproofError
from lakeproof.kafka.modes import ModeName

_TRIES = 3
LOCAL, MINIO, CLUSTER = "local", "minio", "cluster"
FILES, KAFKA = "files", "kafka"
_SQLITE = (Catalog.SQLITE,)
_BOTH = (FILES, KAFKA)
_EACH = tuple(Catalog)


class Part(StrEnum):
    """Parts of the grid."""

    FAULTS = "faults"
    """The consumer is killed, or a dependency fails."""
    OPERATIONS = "operations"
    """Operators and other tools change the lake."""
    LAYERS = "layers"
    """Faults and operations in silver and gold."""
    REPLAY = "replay"
    """Replays of dead letters are killed, and their input is maintained or lost."""
    BREAKER = "breaker"
    """The consumer is killed around a pause and its acceptance."""
    MAINTENANCE = "maintenance"
    """A consumer that maintains its tables, or `consumer maintain`, is killed while others read."""
    SINKS = "sinks"
    """The consumer is killed while it sends its tables to topics."""
    MODES = "modes"
    """The modes on Kafka alone are killed."""
    CLUSTER = "cluster"
    """Processes of a Spark cluster are killed, slow or cut off."""


PROXIED = (Part.FAULTS, Part.CLUSTER)
"""Parts whose scenarios disturb requests to MinIO."""


@dataclass(frozen=True)
class Scenario:
    """A test of a consumer, with its storages, catalogs and sources."""

    name: str
    run: Callable[[Bench], Outcome]
    storages: tuple[str, ...] = (LOCAL, MINIO)
    catalogs: tuple[Catalog, ...] = _SQLITE
    part: Part = Part.FAULTS
    sources: tuple[str, ...] = (FILES,)

    def fits(self, storage: str, catalog: Catalog, source: str) -> bool:
        """Return whether the scenario applies. Catalog servers are tried with files on local storage, or a cluster."""
        plain = catalog in _SQLITE or (storage, source) == (LOCAL, FILES) or storage == CLUSTER
        return storage in self.storages and catalog in self.catalogs and source in self.sources and plain


def scenarios(random_kills: int) -> list[Scenario]:
    """Return all scenarios in the order in which they run."""
    return [
        *_faults(random_kills),
        *_brokers(),
        *_operations(),
        *_layers(),
        *_replays(random_kills),
        *_breakers(),
        *_maintained(random_kills),
        *_sinks(random_kills),
        *_modes(random_kills),
        *_clusters(random_kills),
    ]


def _faults(random_kills: int) -> list[Scenario]:
    between = (Step.BRONZE_APPENDED, Step.DEAD_LETTERS_APPENDED)
    return [
        *(Scenario(f"killed {step}", kills.at(step), sources=_BOTH) for step in OF_BRONZE_STEPS),
        Scenario("killed during the append: manifest there, metadata not", kills.during_append, sources=_BOTH),
        Scenario(
            "killed while the checkpoint's offsets are written", kills.during_checkpoint("offsets"), sources=_BOTH
        ),
        Scenario("killed while the checkpoint's commit is written", kills.during_checkpoint("commits"), sources=_BOTH),
        Scenario("killed and started again at once", kills.restarted, sources=_BOTH),
        Scenario(f"killed at {random_kills} random moments", kills.at_random(random_kills), sources=_BOTH),
        *(
            Scenario(
                f"{step}, checkpoint lost",
                kills.at_and_lost(step, landing_log=False),
                catalogs=_EACH,
                sources=_BOTH,
            )
            for step in between
        ),
        *(
            Scenario(
                f"{step}, checkpoint and landing log lost",
                kills.at_and_lost(step, landing_log=True),
                catalogs=_EACH,
                sources=_BOTH,
            )
            for step in between
        ),
        Scenario("suspended past its lease, replaced, resumed", faults.suspended, sources=_BOTH),
        Scenario("two consumers at once", faults.two_at_once, sources=_BOTH),
        Scenario("a file landed again under another name", faults.landed_again),
        Scenario("a file with garbage at its end", faults.trailing_garbage),
        Scenario("a file overwritten between crash and restart", faults.overwritten),
        Scenario("catalog database locked for 20 s", faults.catalog_locked),
        Scenario("catalog database gone for 10 s", faults.catalog_gone(at_start=False)),
        Scenario("catalog database gone at a start", faults.catalog_gone(at_start=True)),
        Scenario("answers of the catalog lost", faults.answers_lost, catalogs=(Catalog.POSTGRES, Catalog.REST)),
        Scenario("disk full", faults.disk_full, (LOCAL,)),
        *(Scenario(name, run, (MINIO,)) for name, run in _through_the_proxy().items()),
    ]


def _brokers() -> list[Scenario]:
    def listed(name: str, run: Callable[[Bench], Outcome]) -> Scenario:
        return Scenario(name, run, sources=(KAFKA,))

    waiting = (Step.BEFORE_JUDGEMENT, Step.BRONZE_PREPARED, Step.LEDGER_APPENDED)
    return [
        *(listed(f"broker killed {step}", brokers.killed_at(step)) for step in waiting),
        listed("broker killed again and again", brokers.again_and_again),
        listed("broker away for too long", brokers.away_too_long(at_start=False)),
        listed("broker away at a start", brokers.away_too_long(at_start=True)),
        listed(
            "broker and consumer killed between bronze and dead letters",
            brokers.both_killed(Step.BRONZE_APPENDED, checkpoint_lost=False),
        ),
        listed(
            "broker and consumer killed between bronze and dead letters, checkpoint lost",
            brokers.both_killed(Step.BRONZE_APPENDED, checkpoint_lost=True),
        ),
        listed("a partition added, and killed", brokers.partition_added),
    ]


def _sinks(random_kills: int) -> list[Scenario]:
    found = {f"killed {step}": sinks.at(step) for step in SINK_STEPS}
    found[f"killed at {random_kills} random moments while it sends"] = sinks.at_random(random_kills)
    return [Scenario(name, run, part=Part.SINKS, sources=(KAFKA,)) for name, run in found.items()]


def _modes(random_kills: int) -> list[Scenario]:
    return [
        Scenario(
            f"{name} killed at {random_kills} random moments",
            modes.at_random(name, random_kills),
            part=Part.MODES,
            sources=(KAFKA,),
        )
        for name in ModeName
    ]


def _operations() -> list[Scenario]:
    def listed(
        name: str,
        run: operations.Run,
        *,
        local: bool = False,
        catalogs: tuple[Catalog, ...] = _SQLITE,
        sources: tuple[str, ...] = (FILES,),
    ) -> Scenario:
        return Scenario(name, run, (LOCAL,) if local else (LOCAL, MINIO), catalogs, Part.OPERATIONS, sources)

    between = (Step.BRONZE_APPENDED, Step.DEAD_LETTERS_APPENDED)
    losses = {"": "", "checkpoint": ", checkpoint lost", "checkpoint and log": ", checkpoint and landing log lost"}
    return [
        *(
            listed(
                f"{operations.names_of(pieces)} restored from an older copy",
                operations.restored(*pieces),
                sources=_BOTH,
            )
            for pieces in (*operations.SUBSETS, operations.TOGETHER)
        ),
        *(
            listed(f"maintained by {tool} while it runs", operations.maintained_while_running(tool), catalogs=_EACH)
            for tool in operations.JOBS
        ),
        *(
            listed(f"{step}, maintained by {tool}{words}", operations.maintained_after_kill(step, tool, lost))
            for step in between
            for tool in operations.JOBS
            for lost, words in losses.items()
        ),
        listed(
            "orphans of any age removed before the append",
            operations.orphans_removed(Step.AFTER_JUDGEMENT, TABLES.bronze),
        ),
        listed("unmounted at a restart: no landing folder", operations.unmounted(empty=False), local=True),
        listed("unmounted at a restart: an empty mount point", operations.unmounted(empty=True), local=True),
        listed("the landing zone moved", operations.moved, local=True),
        listed("the landing zone by other names", operations.aliased, local=True),
        listed("two first starts at once", operations.two_first_starts(other_stream=False), catalogs=_EACH),
        listed(
            "two first starts at once, of two streams", operations.two_first_starts(other_stream=True), catalogs=_EACH
        ),
        listed("bronze rolled back", operations.undone("roll-back"), sources=_BOTH),
        listed("bronze replaced by itself", operations.undone("replace-by-itself")),
        listed("bronze replaced by nothing", operations.undone("replace-by-nothing")),
    ]


def _layers() -> list[Scenario]:
    def listed(name: str, run: Callable[[Bench], Outcome], sources: tuple[str, ...] = (FILES,)) -> Scenario:
        return Scenario(name, run, part=Part.LAYERS, sources=sources)

    # PyIceberg does not write format 3, which gold has.
    of_v2 = [table for table in OF_LAYERS if table != GOLD]
    maintained = {"plain Spark": OF_LAYERS, "PyIceberg": of_v2}
    ends = (Step.SILVER_LEDGER_APPENDED, Step.SILVER_APPENDED)
    rebuilds = {"silver": f"consumer rebuild silver {STREAM}", "gold": f"consumer rebuild gold {PRODUCT}"}
    undone = {
        "roll-back": "rolled back",
        "replace-by-itself": "replaced by itself",
        "replace-by-nothing": "replaced by nothing",
    }
    return [
        *(listed(f"killed {step}", kills.at(step), _BOTH) for step in LAYER_STEPS),
        *(
            listed(f"{step}, checkpoint and landing log lost", kills.at_and_lost(step, landing_log=True))
            for step in (Step.SILVER_LEDGER_APPENDED, Step.GOLD_PREPARED)
        ),
        *(
            listed(f"suspended past its lease {step}, replaced, resumed", partial(faults.suspended, step=step))
            for step in (Step.SILVER_PREPARED, Step.GOLD_PREPARED)
        ),
        *(
            listed(f"{step}, {'an older' if old else 'no'} key index", layers.index_lost(step, old=old))
            for step in ends
            for old in (False, True)
        ),
        *(
            listed(
                f"silver and gold maintained by {tool} while it runs",
                operations.maintained_while_running(tool, maintained[tool]),
            )
            for tool in operations.JOBS
        ),
        *(
            listed(
                f"{step}, silver and gold maintained by {tool}",
                operations.maintained_after_kill(step, tool, "", maintained[tool]),
            )
            for step in (Step.SILVER_LEDGER_APPENDED, Step.GOLD_COMPUTED)
            for tool in operations.JOBS
        ),
        *(
            listed(f"orphans of any age removed from {table} {step}", operations.orphans_removed(step, table))
            for step, table in ((Step.SILVER_LEDGER_APPENDED, SILVER.kept), (Step.GOLD_COMPUTED, GOLD))
        ),
        *(
            listed(f"{layer} {done}", operations.undone(job, table, rebuilds[layer]))
            for layer, table in (("silver", SILVER.kept), ("gold", GOLD))
            for job, done in undone.items()
        ),
        *(
            listed(f"a rebuild of {layer} killed {step}", layers.rebuild_killed(layer, step))
            for layer, step in (
                ("silver", Step.SILVER_LEDGER_APPENDED),
                ("silver", Step.REBUILD_FILLED),
                ("gold", Step.GOLD_COMPUTED),
            )
        ),
    ]


def _replays(random_kills: int) -> list[Scenario]:
    def listed(
        name: str, run: replays.Run, sources: tuple[str, ...] = (FILES,), storages: tuple[str, ...] = (LOCAL,)
    ) -> Scenario:
        return Scenario(name, run, storages, part=Part.REPLAY, sources=sources)

    def finished(number: int, by: By) -> tuple[str, ...]:
        """Return the sources; messages have every other combination, as both are alike from the dead letters on."""
        return _BOTH if list(By).index(by) == number % len(By) else (FILES,)

    losses = {"checkpoint": "checkpoint", "checkpoint and log": "checkpoint and landing log"}
    lost_at = {Step.ATTEMPTS_APPENDED: By.RUN, Step.BRONZE_APPENDED: By.REPLAY, Step.DEAD_LETTERS_APPENDED: By.RUN}
    kills = max(random_kills // 5, 2)
    return [
        *(
            listed(f"a replay killed {step}, finished by {by}", replays.killed(step, by), finished(number, by))
            for number, step in enumerate(REPLAY_STEPS)
            for by in By
            if step in replays.INTERRUPTED or list(By).index(by) == number % len(By)
        ),
        *(
            listed(
                f"a replay killed {step}, {words} lost, finished by {by}",
                replays.killed(step, by, lost=lost),
                _BOTH if step is Step.BRONZE_APPENDED else (FILES,),
                (LOCAL, MINIO),
            )
            for step, by in lost_at.items()
            for lost, words in losses.items()
        ),
        *(
            listed(
                f"a replay killed {step}, maintained by {tool}, finished by {by}",
                replays.killed(step, by, lost=lost, tool=tool),
            )
            for step, tool, by, lost in (
                (Step.ATTEMPTS_APPENDED, "plain Spark", By.RUN, "checkpoint and log"),
                (Step.ATTEMPTS_APPENDED, "PyIceberg", By.REPLAY, ""),
                (Step.DEAD_LETTERS_APPENDED, "plain Spark", By.REPLAY, ""),
                (Step.DEAD_LETTERS_APPENDED, "PyIceberg", By.RUN, "checkpoint"),
            )
        ),
        *(
            listed(f"dead letters maintained by {tool} between two replays", replays.maintained_between(tool))
            for tool in operations.JOBS
        ),
        *(
            listed(f"a replay {step}, maintained by plain Spark meanwhile", replays.maintained_within(step))
            for step in (Step.BEFORE_JUDGEMENT, Step.BRONZE_PREPARED)
        ),
        *(
            listed(f"a run killed {step}, then a replay", replays.run_killed(step), sources)
            for step, sources in (
                (Step.BEFORE_JUDGEMENT, _BOTH),
                (Step.BRONZE_APPENDED, _BOTH),
                (Step.DEAD_LETTERS_APPENDED, (FILES,)),
                (Step.LEDGER_APPENDED, _BOTH),
            )
        ),
        Scenario(
            "a replay whose commits are not answered",
            replays.answers_lost,
            (LOCAL,),
            (Catalog.POSTGRES, Catalog.REST),
            Part.REPLAY,
        ),
        listed("a replay refused beside the stream", replays.refused_beside_the_stream, _BOTH),
        listed("two replays at once", replays.two_at_once, _BOTH),
        listed(
            f"a replay suspended past its lease {Step.BRONZE_PREPARED}, finished by a run, resumed",
            replays.suspended(Step.BRONZE_PREPARED),
        ),
        listed("a replay killed again each time that it is to be finished", replays.killed_in_turn, _BOTH),
        listed("a replay killed in its second micro-batch", replays.killed_in_its_second_micro_batch, _BOTH),
        listed(f"replays killed at {kills} random moments", replays.killed_at_random(kills), _BOTH, (LOCAL, MINIO)),
        listed("a replay killed, finished without the landing zone", replays.unmounted),
        listed("a replay killed, finished without the brokers", replays.broker_away, (KAFKA,)),
    ]


def _breakers() -> list[Scenario]:
    def listed(name: str, run: breakers.Run, sources: tuple[str, ...] = (FILES,)) -> Scenario:
        return Scenario(name, run, (LOCAL,), part=Part.BREAKER, sources=sources)

    return [
        listed(f"killed {Step.PAUSING}", breakers.pause_killed(Step.PAUSING)),
        listed(f"killed {Step.PAUSED}", breakers.pause_killed(Step.PAUSED), _BOTH),
        listed(f"killed {Step.PAUSED}, checkpoint lost", breakers.pause_killed(Step.PAUSED, lost=True)),
        *(listed(f"accept killed {step}", breakers.accept_killed(step)) for step in (Step.ACCEPTING, Step.ACCEPTED)),
        *(
            listed(f"accepted, killed {step}", breakers.accepted_and_killed(step), sources)
            for step, sources in (
                (Step.BRONZE_PREPARED, (FILES,)),
                (Step.BRONZE_APPENDED, _BOTH),
                (Step.LEDGER_APPENDED, (FILES,)),
                (Step.PAUSE_ENDING, (FILES,)),
            )
        ),
        listed(
            f"accepted, killed {Step.BRONZE_APPENDED}, checkpoint lost",
            breakers.accepted_and_killed(Step.BRONZE_APPENDED, lost=True),
        ),
    ]


def _maintained(kills: int) -> list[Scenario]:
    def listed(
        name: str, run: maintained.Run, sources: tuple[str, ...] = _BOTH, storages: tuple[str, ...] = (LOCAL, MINIO)
    ) -> Scenario:
        return Scenario(name, run, storages, part=Part.MAINTENANCE, sources=sources)

    return [
        *(listed(f"killed {step}", maintained.killed(step)) for step in MAINTENANCE_STEPS),
        *(
            listed(
                f"a replay and a maintenance at once, killed {step}",
                maintained.beside_a_replay(step),
                storages=(LOCAL,),
            )
            for step in (Step.REWRITTEN, Step.SWAPPING, Step.EXPIRING)
        ),
        listed("two maintainers that do not see each other", maintained.two_maintainers, (FILES,)),
        listed(f"read all along, killed at {kills} random moments", maintained.read_all_along(kills)),
    ]


def _clusters(random_kills: int) -> list[Scenario]:
    def listed(name: str, run: Callable[[Bench], Outcome]) -> Scenario:
        return Scenario(name, run, (CLUSTER,), (Catalog.POSTGRES,), Part.CLUSTER)

    steps = (*OF_BRONZE_STEPS, *LAYER_STEPS)
    return [
        *(listed(f"driver killed {step}", kills.at(step)) for step in steps),
        *(
            listed(f"{victim} killed {step}", clusters.killed(victim, step))
            for victim in clusters.VICTIMS
            for step in steps
        ),
        listed(f"cluster killed at {random_kills} random moments", clusters.at_random(random_kills)),
        listed("tasks slow, copies committed first", clusters.speculated),
        *(
            listed(f"Postgres restarted {step}", clusters.postgres_restarted(step))
            for step in (Step.BRONZE_APPENDED, Step.SILVER_LEDGER_APPENDED)
        ),
        listed("MinIO killed during a task's upload", faults.minio_killed(faults.DATA_PUT, "request")),
        listed("MinIO killed during the driver's commit", faults.minio_killed(faults.METADATA_PUT, "response")),
        listed("an executor that the storage refuses", clusters.cut_off),
        listed("an executor whose clock is ahead", clusters.clocks_apart),
    ]


def run_scenario(scenario: Scenario, bench: Bench) -> Row:
    """Run a scenario; retry it if the fault did not strike."""
    began = time.monotonic()
    outcome = Outcome()
    for _ in range(_TRIES):
        try:
            outcome = scenario.run(bench)
            break
        except NotStruckError as missed:
            outcome = Outcome(notes=[str(missed)])
        except (BrokenError, LakeproofError, OSError, subprocess.SubprocessError) as error:
            bench.give_up()
            outcome = Outcome(problems=[f"could not be tried: {error}"])
            break
    return Row(scenario.name, bench.options.where, outcome, time.monotonic() - began)


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
