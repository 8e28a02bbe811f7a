"""The bench on which a consumer is hurt: a lake, its storage, the consumer that runs on it, and their checks."""

import signal
import sys
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.chaos.grid import Outcome
from tests.chaos.lake import STREAM, Lake
from tests.chaos.mutants import Mutant
from tests.chaos.orders import Act, Orders, Step
from tests.chaos.processes import Process, wait_until
from tests.chaos.servers import MinioServer, Proxy
from tests.chaos.victim import LEASE_SECONDS, MUTANT, ORDERS

from lakeproof.settings import S3Settings
from lakeproof.storage.s3 import s3_client

DRAIN_SECONDS = 300.0
STRIKE_SECONDS = 60.0
_WORDS = 3
"""Lines at the end of a log of which one says what is wrong."""


class NotStruckError(Exception):
    """The fault did not happen: the scenario proves nothing."""


class BrokenError(Exception):
    """The lake or the consumer is not what it must be before a fault is tried."""


@dataclass(frozen=True)
class Options:
    """How a bench is set up.

    Parameters
    ----------
    folder
        For all that it makes.
    minio
        Whether the lake lies in MinIO, which the consumer reaches through a proxy; else in the folder.
    seed
        Decides what lands and when a random kill comes.
    lease_seconds
        How long a lease lasts; None for as long as it is.
    mutant
        What is broken in the consumer.
    """

    folder: Path
    minio: bool = False
    seed: int = 0
    lease_seconds: float | None = None
    mutant: Mutant | None = None


class Bench:
    """Keeps a lake and a consumer from one scenario to the next, as long as nothing is wrong with them.

    So the start that a kill needs is also the check of that kill, and damage adds up where it could be seen.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.starts: dict[int, float] = {}
        """By process: seconds from the start of a consumer after a fault to its line that it has started."""
        self._stack = ExitStack()
        self._lakes = 0
        self._runs = 0
        self._lake: Lake | None = None
        self.consumer: Process | None = None
        self._processes: list[Process] = []
        self._direct = self._through_proxy = S3Settings(_env_file=None)

    def __enter__(self) -> Self:
        if self.options.minio:
            self.server = self._stack.enter_context(MinioServer(self.options.folder / "minio"))
            self.proxy = self._stack.enter_context(Proxy(self.server.address, self.options.folder / "proxy"))
            self._direct = self.server.minio.settings()
            self._through_proxy = self._direct.model_copy(update={"endpoint_url": self.proxy.endpoint_url})
        return self

    def __exit__(self, *_error: object) -> None:
        self.end_consumers()
        self._stack.close()

    @property
    def lake(self) -> Lake:
        """The lake of the present scenario."""
        if self._lake is None:
            raise BrokenError("there is no lake")
        return self._lake

    @property
    def orders(self) -> Orders:
        """Orders to the consumers of the present lake."""
        return Orders(self.lake.folder / "orders.json")

    def new_lake(self, folder: Path | None = None) -> Lake:
        """Begin with another lake; the present one and its consumer are given up."""
        self.end_consumers()
        self._lakes += 1
        bucket = None
        if self.options.minio:
            bucket = f"chaos-{uuid.uuid4().hex[:12]}"
            s3_client(self._direct).create_bucket(Bucket=bucket)
        home = (folder or self.options.folder) / f"lake-{self._lakes}"
        self._lake = Lake(home, bucket, self._direct, self.options.seed + self._lakes)
        return self._lake

    def give_up(self) -> None:
        """Let no other scenario use the present lake."""
        self.end_consumers()
        self._lake = None

    def start(self, *arguments: str) -> Process:
        """Start a consumer; by default one that goes on until it is ended."""
        self._runs += 1
        environment = self.lake.environment(self._through_proxy) | {
            ORDERS: str(self.orders.file),
            # What a killed process leaves behind goes away with the lake.
            "TMPDIR": str(self._scratch()),
            "SPARK_LOCAL_DIRS": str(self._scratch()),
        }
        if self.options.lease_seconds:
            environment[LEASE_SECONDS] = str(self.options.lease_seconds)
        if self.options.mutant:
            environment[MUTANT] = self.options.mutant
        if self.options.mutant is Mutant.TRAILING_GARBAGE:  # the one that is in the workers
            worker = Path(__file__).with_name("worker.sh")
            environment |= {"PYSPARK_PYTHON": str(worker), "CHAOS_PYTHON": sys.executable}
        arguments = arguments or ("--trigger", "200 milliseconds")
        command = [sys.executable, "-m", "tests.chaos.victim", "run", STREAM, *arguments]
        process = Process(command, environment, self.options.folder / f"consumer-{self._runs}.log")
        self._processes.append(process)
        return process

    def ready(self) -> Lake:
        """Have a lake in which all that landed is accounted for, and a consumer that waits for more."""
        if self._lake is None:
            self.new_lake().land(4)
        if not (self.consumer and self.consumer.alive):
            self.consumer = self.start()
        self.calm()
        if problem := self.drain():
            self.give_up()
            raise BrokenError(problem)
        return self.lake

    def drain(self, seconds: float = DRAIN_SECONDS) -> str | None:
        """Wait until all that landed is accounted for; return what is wrong if that does not come."""
        consumer = self.consumer
        if consumer is None:
            return "no consumer runs"
        if wait_until(lambda: self.lake.drained() or not consumer.alive, seconds, every=0.2) and consumer.alive:
            return None
        if not consumer.alive:
            return f"the consumer ended with {consumer.wait(0)}: {consumer.last_words()}"
        return f"not drained within {seconds:.0f} s"

    def recover(self, outcome: Outcome, *, may_end: bool = False) -> Outcome:
        """Start a consumer after the fault, drain, and check everything. A lake that is off is used no more.

        Parameters
        ----------
        outcome
            What is known so far; what is found is added to it.
        may_end
            Whether the consumer may have ended because of the fault, if it said why in a clear line.
        """
        self.calm()
        self.lake.land(3)
        if may_end and (problem := self.drain()):
            outcome.notes.append(problem)
            outcome.problems += self.unclear_end()
        if not (self.consumer and self.consumer.alive):
            self.consumer = self.start()
        problem = self.drain()
        for line in self.consumer.said("started"):
            self.starts[self.consumer.pid] = line.seconds
        outcome.problems += [problem] if problem else []
        self.check(outcome)
        if outcome.lost or outcome.doubled or outcome.problems:
            self.give_up()
        return outcome

    def unclear_end(self) -> list[str]:
        """What is wrong with the way in which the consumer ended."""
        consumer = self.consumer
        if consumer is None or (code := consumer.wait(60)) is None:
            return ["the consumer neither goes on nor ends"]
        consumer.end_all()
        clear = code in (1, 3) and any(line.startswith("Error: ") for line in consumer.text().splitlines()[-_WORDS:])
        return [] if clear else [f"it ended with {code} and no clear line: {consumer.last_words()}"]

    def calm(self) -> None:
        """Take back what disturbs."""
        self.orders.take_back()
        if self.options.minio:
            self.proxy.lift()

    def check(self, outcome: Outcome) -> None:
        """Count, and let ``reader verify`` count."""
        counted = self.lake.count()
        outcome.lost += counted.lost
        outcome.doubled += counted.doubled
        self.verified = verified = self.lake.verify()
        if verified.exit_code != 0:
            off = sorted(set(verified.off().values()) - {"pending"})
            outcome.problems.append(f"verify: exit code {verified.exit_code}: {', '.join(off) or verified.said}")

    def order(self, step: Step, act: Act, files: int = 6) -> Process:
        """Let the running consumer act at a step of its next micro-batch; return it when it has come there."""
        self.ready()
        consumer = self.consumer
        assert consumer is not None
        self.orders.give(step, act)
        self.lake.land(files)
        if not wait_until(lambda: self.orders.struck() or not consumer.alive, STRIKE_SECONDS, every=0.01):
            raise NotStruckError(f"it did not come {step}")
        if not self.orders.struck():
            raise NotStruckError(f"it ended by itself: {consumer.last_words()}")
        return consumer

    def kill_at(self, step: Step) -> None:
        """SIGKILL at a step."""
        consumer = self.order(step, Act.KILL)
        if consumer.wait(10) != -signal.SIGKILL:
            raise NotStruckError(f"it was not killed {step}")
        consumer.end_all()

    def end_consumers(self) -> None:
        """SIGKILL every consumer."""
        for process in self._processes:
            process.end_all()
        self._processes.clear()
        self.consumer = None

    def _scratch(self) -> Path:
        folder = self.options.folder / "scratch"
        folder.mkdir(exist_ok=True)
        return folder
