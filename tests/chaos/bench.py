"""The bench on which a consumer is hurt: a lake, its storage, the consumer that uses it, and their checks."""

import itertools
import signal
import sys
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from tests.chaos.grid import Outcome
from tests.chaos.kafka.lake import TopicLake
from tests.chaos.lake import STREAM, Lake
from tests.chaos.letters import MAX_ATTEMPTS
from tests.chaos.mutants import Mutant
from tests.chaos.orders import Act, Orders, Step
from tests.chaos.processes import Process, wait_until
from tests.chaos.servers import MinioServer, Proxy
from tests.chaos.victim import LEASE_SECONDS, MUTANT, ORDERS
from tests.cluster import Cluster
from tests.lost_answers import REST_ANSWERS, PostgresProxy, RestProxy
from tests.servers import KafkaServer, PostgresServer, RestCatalogServer

from lakeproof.contracts import SilverStrategy
from lakeproof.settings import S3Settings
from lakeproof.storage.s3 import s3_client

DRAIN_SECONDS = 300.0
_MOST_DRAIN_SECONDS = 4 * DRAIN_SECONDS  # on a busy machine, while the ledger still grows
STRIKE_SECONDS = 60.0
PROGRAM_SECONDS = 180.0
LOCAL_TRIGGER = "200 milliseconds"
MINIO_TRIGGER = "1 second"  # each look for new files is a dozen requests, which together take half a core
_POLL_SECONDS = 0.5  # a look at the tables of a lake in MinIO is a dozen requests, too


class NotStruckError(Exception):
    """Raised if the fault did not happen, so the scenario proves nothing."""


class BrokenError(Exception):
    """Raised if the lake or the consumer is not in the state required before a fault."""


class Catalog(StrEnum):
    """Catalog of the lakes."""

    SQLITE = "sqlite"
    """In the lake's folder, like the landing log."""
    POSTGRES = "postgres"
    """The landing log is in Postgres, too, in a database of its own."""
    REST = "rest"


@dataclass(frozen=True)
class Options:
    """Setup of a bench.

    Parameters
    ----------
    folder
        Folder for all files of the bench.
    minio
        Whether the lake is in MinIO; otherwise it is in the folder.
    seed
        Determines the landed data and the times of random kills.
    lease_seconds
        Duration of a lease; None for the default.
    mutant
        What is broken in the consumer.
    catalog
        Catalog of the lakes.
    strategy
        Strategy of silver in the lakes.
    kafka
        Whether batches are messages of a topic; otherwise they are files.
    cluster
        Whether tasks run on a standalone cluster with two workers; requires `minio` and a catalog in Postgres.
    proxied
        Whether the consumer reaches MinIO through a proxy that can disturb its requests.
    """

    folder: Path
    minio: bool = False
    seed: int = 0
    lease_seconds: float | None = None
    mutant: Mutant | None = None
    catalog: Catalog = Catalog.SQLITE
    strategy: SilverStrategy = SilverStrategy.MERGE
    kafka: bool = False
    cluster: bool = False
    proxied: bool = True

    @property
    def where(self) -> str:
        """Storage, catalog and source, for the grid."""
        if self.cluster:
            return "cluster"
        storage = "minio" if self.minio else "local"
        catalog = "" if self.catalog is Catalog.SQLITE else f", {self.catalog}"
        return f"{storage}{catalog}{', kafka' * self.kafka}"


class Bench:
    """Keeps a lake and a consumer across scenarios, as long as nothing is wrong with them.

    So the start after a kill is also the check of that kill, and damage accumulates where it can be seen.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.starts: dict[int, float] = {}
        """By process: seconds from the start of a consumer after a fault to its line "started"."""
        self._stack = ExitStack()
        self._lakes = 0
        self._runs = 0
        self._lake: Lake | None = None
        self.consumer: Process | None = None
        """The consumer that must run; None before its first start, and after a scenario has ended it on purpose."""
        self._processes: list[Process] = []
        self._rest: RestCatalogServer | None = None
        self.catalog_proxy: PostgresProxy | RestProxy | None = None
        """Proxy of a catalog server; answers to commits are lost while :attr:`loses_answers`."""
        self.loses_answers = False
        self._direct = self._through_proxy = S3Settings()

    def __enter__(self) -> Self:
        if self.options.minio:
            self.server = self._stack.enter_context(MinioServer(self.options.folder / "minio"))
            self._direct = self._through_proxy = self.server.minio.settings()
        if self.options.minio and self.options.proxied:
            self.proxy = self._stack.enter_context(Proxy(self.server.address, self.options.folder / "proxy"))
            self._through_proxy = self._direct.model_copy(update={"endpoint_url": self.proxy.endpoint_url})
        if self.options.catalog is Catalog.POSTGRES:
            self.postgres = self._stack.enter_context(PostgresServer(self.options.folder / "postgres"))
        if self.options.cluster:
            minio, folder = self.server.minio, self.options.folder
            keys = {"AWS_ACCESS_KEY_ID": minio.access_key, "AWS_SECRET_ACCESS_KEY": minio.secret_key}
            self.cluster = self._stack.enter_context(Cluster(folder / "cluster", keys, [folder]))
        if self.options.kafka:
            self.broker = self._stack.enter_context(KafkaServer(self.options.folder / "kafka"))
        return self

    def __exit__(self, *_error: object) -> None:
        self.end_consumers()
        if self.catalog_proxy:
            self.catalog_proxy.close()
        if self._rest:
            self._rest.stop()
        self._stack.close()

    @property
    def lake(self) -> Lake:
        """The lake of the current scenario."""
        if self._lake is None:
            raise BrokenError("there is no lake")
        return self._lake

    @property
    def strategy(self) -> SilverStrategy | None:
        """Strategy of silver in the current lake, if there is one."""
        return self._lake.strategy if self._lake else None

    @property
    def has_lake(self) -> bool:
        """Whether an earlier scenario has left its lake."""
        return self._lake is not None

    @property
    def orders(self) -> Orders:
        """Orders to the consumers of the current lake."""
        return Orders(self.lake.folder / "orders.json")

    def new_lake(
        self, folder: Path | None = None, *, sinks: bool = False, strategy: SilverStrategy | None = None
    ) -> Lake:
        """Create a new lake; the current one and its consumer are given up.

        Parameters
        ----------
        folder
            Location; None for the folder of the bench.
        sinks
            Whether tables are sent to topics, if the lake is filled from a topic.
        strategy
            Strategy of silver, if the lake is filled from files; None for the strategy of the bench.
        """
        self.end_consumers()
        self._lakes += 1
        bucket = None
        if self.options.minio:
            bucket = f"chaos-{uuid.uuid4().hex[:12]}"
            s3_client(self._direct).create_bucket(Bucket=bucket)
        home = (folder or self.options.folder) / f"lake-{self._lakes}"
        warehouse = f"s3://{bucket}/warehouse" if bucket else (home / "warehouse").as_uri()
        seed, others = self.options.seed + self._lakes, self._databases(warehouse)
        if self.options.kafka:
            self._lake = TopicLake(home, bucket, self._direct, seed, others, broker=self.broker, sinks=sinks)
        else:
            self._lake = Lake(home, bucket, self._direct, seed, others, strategy or self.options.strategy)
        if self.options.cluster:
            # Tasks decide silver, so that executors also die between its stages.
            self._lake.others |= {"LAKE_SILVER_DRIVER_ROWS": "0", "SPARK_LOCAL_IP": "127.0.0.1"}
            self._lake.others |= {"LAKE_SPARK_MASTER": self.cluster.master.uri, "LAKE_EXECUTORS": "2"}
            self._lake.others |= {"LAKE_SPARK_PYTHON": self.cluster.python, "LAKE_MAX_FILES_PER_MICRO_BATCH": "16"}
        return self._lake

    def _databases(self, warehouse: str) -> dict[str, str]:
        """Create the databases of a lake's catalog and landing log; return their settings."""
        if self.catalog_proxy:
            self.catalog_proxy.close()
        if self.options.catalog is Catalog.POSTGRES:
            # Lose answers to Iceberg's commits only: PyIceberg's transactions end with a COMMIT.
            proxy = PostgresProxy(self.postgres.port, lambda tag: self.loses_answers and tag == "UPDATE 1")
            self.catalog_proxy = proxy
            return {
                "LAKE_CATALOG_URI": proxy.through(self.postgres.new_database()),
                "LAKE_LANDING_LOG_URI": self.postgres.new_database(),
            }
        if self.options.catalog is Catalog.REST:
            if self._rest:  # one server is one catalog
                self._rest.stop()
            folder = self.options.folder / f"rest-{self._lakes}"
            self._rest = RestCatalogServer(folder, warehouse, self._direct if self.options.minio else None)
            turns = itertools.cycle(REST_ANSWERS)
            self.catalog_proxy = RestProxy(self._rest.uri, lambda _: next(turns) if self.loses_answers else None)
            return {"LAKE_CATALOG": "rest", "LAKE_CATALOG_URI": self.catalog_proxy.uri}
        return {}

    def give_up(self) -> None:
        """Keep other scenarios from using the current lake."""
        self.end_consumers()
        self._lake = None

    def start(self, *arguments: str, stream: str = STREAM) -> Process:
        """Start a consumer; by default one that runs until it is ended."""
        trigger = ("--trigger", MINIO_TRIGGER if self.options.minio else LOCAL_TRIGGER)
        arguments = (*self.lake.run_arguments * (stream == STREAM), *(arguments or trigger))
        if self.options.mutant:
            arguments = (*arguments, "--to", self.options.mutant.layer)
        return self.start_victim("run", stream, *arguments)

    def start_replay(self, *arguments: str, in_workers: bool = False, orders: Orders | None = None) -> Process:
        """Start a replay of all dead letters that may be replayed."""
        options = ("--salvage", "--max-attempts", str(MAX_ATTEMPTS))
        return self.start_victim("replay", STREAM, *options, *arguments, in_workers=in_workers, orders=orders)

    def start_victim(self, *arguments: str, in_workers: bool = False, orders: Orders | None = None) -> Process:
        """Start a command of the consumer that can be hurt; also inside Spark's workers, if these have hooks.

        Two commands at once need `orders` of their own for one of them.
        """
        environment = self.lake.environment(self._through_proxy) | {
            ORDERS: str((orders or self.orders).file),
            # Files left by a killed process are removed with the lake.
            "TMPDIR": str(self._scratch()),
            "SPARK_LOCAL_DIRS": str(self._scratch()),
        }
        if self.options.lease_seconds:
            environment[LEASE_SECONDS] = str(self.options.lease_seconds)
        if self.options.mutant:
            environment[MUTANT] = self.options.mutant
        if in_workers or (self.options.mutant and self.options.mutant.in_workers(arguments[0])):
            worker = Path(__file__).with_name("worker.sh")
            environment |= {"PYSPARK_PYTHON": str(worker), "CHAOS_PYTHON": sys.executable}
        return self._begin("consumer", ["tests.chaos.victim", *arguments], environment)

    def start_program(self, *arguments: str) -> Process:
        """Start a program (module and arguments) that uses the lake beside the consumer, or while none runs."""
        environment = self.lake.environment(self._direct) | {"TMPDIR": str(self._scratch())}
        return self._begin("program", list(arguments), environment)

    def run_program(self, *arguments: str) -> str:
        """Run a program like :meth:`start_program` to its end; return its output.

        Raises
        ------
        BrokenError
            The program failed.
        """
        process = self.start_program(*arguments)
        code = process.wait(PROGRAM_SECONDS)
        process.end_all()
        if code != 0:
            raise BrokenError(f"{' '.join(arguments)} ended with {code}: {process.last_words()}")
        return process.text()

    def stop(self) -> None:
        """Stop the consumer as an operator does, by SIGTERM, and wait for its end."""
        consumer = self.consumer
        assert consumer is not None
        consumer.signal_itself(signal.SIGTERM)
        code = consumer.wait(60)
        consumer.end_all()
        self.consumer = None
        if code != 0:
            raise BrokenError(f"on SIGTERM the consumer ended with {code}: {consumer.last_words()}")

    def _begin(self, what: str, module: list[str], environment: dict[str, str]) -> Process:
        self._runs += 1
        log = self.options.folder / f"{what}-{self._runs}.log"
        process = Process([sys.executable, "-m", *module], environment, log)
        self._processes.append(process)
        return process

    def ready(self) -> Lake:
        """Return a lake in which all landed data is accounted for, with a consumer that waits for more."""
        if self._lake is None:
            self.new_lake().land(4)
        if problems := self.ended_by_itself():
            raise BrokenError(problems[0])
        self.consumer = self.consumer or self.start()
        self.calm()
        if problem := self.drain():
            self.give_up()
            raise BrokenError(problem)
        return self.lake

    def drain(self, seconds: float = _MOST_DRAIN_SECONDS, stalled_seconds: float = DRAIN_SECONDS) -> str | None:
        """Wait until all landed data is accounted for; return the problem if that does not happen.

        Parameters
        ----------
        seconds
            Time to wait.
        stalled_seconds
            Time for which the ledger may stay unchanged meanwhile.
        """
        consumer = self.consumer
        if consumer is None:
            return "no consumer runs"
        accounted, since = -1, time.monotonic()

        def stalled() -> bool:
            nonlocal accounted, since
            if (now := self.lake.accounted()) != accounted:
                accounted, since = now, time.monotonic()
            return time.monotonic() - since > stalled_seconds

        if wait_until(lambda: self.lake.drained() or not consumer.alive or stalled(), seconds, every=_POLL_SECONDS):
            if not consumer.alive:
                return f"the consumer ended with {consumer.wait(0)}: {consumer.last_words()}"
            if self.lake.drained():
                return None
        return f"not drained: {self.lake.accounted()} of {len(self.lake.files)} batches are in the ledger"

    def recover(self, outcome: Outcome, *, may_end: bool = False) -> Outcome:
        """Start a consumer after the fault, drain, and check everything. A faulty lake is not used again.

        Parameters
        ----------
        outcome
            Results so far; findings are added.
        may_end
            Whether the consumer may have ended because of the fault, if a clear line says why.
        """
        self.calm()
        self.lake.land(3)
        if not may_end:
            outcome.problems += self.ended_by_itself()
        elif problem := self.drain():
            outcome.notes.append(problem)
            outcome.problems += self.unclear_end()
        if not (self.consumer and self.consumer.alive):
            self.consumer = self.start()
        problem = self.drain()
        for line in self.consumer.said("started"):
            self.starts[self.consumer.pid] = line.seconds
        outcome.problems += [problem] if problem else []
        self.check(outcome)
        if not outcome.harmless:
            self.give_up()
        return outcome

    def missed(self, why: str, *, may_end: bool = False) -> Outcome:
        """Recover from a fault that did not strike; return the outcome if anything was found.

        Raises
        ------
        NotStruckError
            Nothing was found, so the scenario can be tried again.
        """
        outcome = self.recover(Outcome(notes=[why]), may_end=may_end)
        if outcome.harmless:
            raise NotStruckError(why)
        return outcome

    def ended_by_itself(self) -> list[str]:
        """Return the problem if the consumer has ended, though no scenario has ended it."""
        consumer = self.consumer
        if consumer is None or consumer.alive:
            return []
        return [f"the consumer ended by itself with {consumer.wait(0)}: {consumer.last_words()}"]

    def unclear_end(self) -> list[str]:
        """Return what is wrong with the consumer's end."""
        consumer = self.consumer
        if consumer is None or (code := consumer.wait(60)) is None:
            return ["the consumer neither goes on nor ends"]
        consumer.end_all()
        if "Traceback" in consumer.text():
            return [f"it ended with {code} and a stack trace: {consumer.last_words()}"]
        clear = code in (1, 2, 3) and bool(consumer.said("failed"))
        return [] if clear else [f"it ended with {code} and no clear line: {consumer.last_words()}"]

    def calm(self) -> None:
        """Remove all disturbances."""
        self.loses_answers = False
        self.orders.take_back()
        if self.options.minio and self.options.proxied:
            self.proxy.lift()

    def check(self, outcome: Outcome) -> None:
        """Count units, and run ``reader verify``."""
        counted = self.lake.count()
        outcome.lost += counted.lost
        outcome.doubled += counted.doubled
        self.verified = verified = self.lake.verify()
        if verified.exit_code != 0:
            off = sorted(set(verified.off().values()) - {"pending"})
            outcome.problems.append(f"verify: exit code {verified.exit_code}: {', '.join(off) or verified.said}")

    def order(self, step: Step, act: Act, files: int = 6) -> Process:
        """Let the running consumer act at a step of its next micro-batch; return it once it has reached the step."""
        self.ready()
        consumer = self.consumer
        assert consumer is not None
        self.orders.give(step, act)
        self.lake.land(files)
        if not wait_until(lambda: self.orders.struck() or not consumer.alive, STRIKE_SECONDS, every=0.01):
            raise NotStruckError(f"it did not come {step}")
        if not self.orders.struck():
            raise BrokenError(self.ended_by_itself()[0])
        return consumer

    def kill_at(self, step: Step) -> None:
        """Kill the consumer with SIGKILL at a step."""
        consumer = self.order(step, Act.KILL)
        code = consumer.wait(10)
        consumer.end_all()
        self.consumer = None
        if code != -signal.SIGKILL:
            raise NotStruckError(f"it was not killed {step}")

    def kill(self, outcome: Outcome) -> None:
        """Kill the consumer with SIGKILL; if it has ended before, that is a problem."""
        assert self.consumer is not None
        outcome.problems += self.ended_by_itself()
        self.consumer.end_all()
        self.consumer = None

    def await_start(self, process: Process) -> None:
        """Wait until a command of the consumer says that it has started, or ends."""
        wait_until(lambda: bool(process.said("started")) or not process.alive, PROGRAM_SECONDS)

    def await_step(self, process: Process, orders: Orders | None = None) -> None:
        """Wait until a process other than the consumer has come to the step of its order.

        Raises
        ------
        BrokenError
            It ended by itself.
        NotStruckError
            It did not come to the step in time; the lake is given up.
        """
        orders = orders or self.orders
        if not wait_until(lambda: orders.struck() or not process.alive, PROGRAM_SECONDS, every=0.01):
            self.give_up()  # the process may have the stream's lease
            raise NotStruckError("it did not come to its step")
        if not orders.struck():
            raise BrokenError(f"it ended by itself: {process.last_words()}")

    def end_by_kill(self, process: Process, step: Step, seconds: float = PROGRAM_SECONDS) -> None:
        """Wait until a process is killed at a step, as it was ordered; the lake is given up if it is not.

        Raises
        ------
        BrokenError
            It ended by itself, with an error.
        NotStruckError
            It did not come to the step.
        """
        code = process.wait(seconds)
        process.end_all()
        self.calm()
        if code == -signal.SIGKILL:
            return
        self.give_up()
        if code:
            raise BrokenError(f"it ended by itself with {code}: {process.last_words()}")
        raise NotStruckError(f"it was not killed {step}: {process.last_words()}")

    def end_consumers(self) -> None:
        """Kill every consumer with SIGKILL."""
        for process in self._processes:
            process.end_all()
        self._processes.clear()
        self.consumer = None

    def _scratch(self) -> Path:
        folder = self.options.folder / "scratch"
        folder.mkdir(exist_ok=True)
        return folder
