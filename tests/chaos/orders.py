"""Orders of the harness to a victim, for certain steps: a small file that the victim's hooks read."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import msgspec


class Step(StrEnum):
    """Steps of a micro-batch at which there is a hook."""

    BEFORE_JUDGEMENT = "before the judgement"
    AFTER_JUDGEMENT = "after the judgement, nothing committed"
    BRONZE_PREPARED = "between look and commit of bronze"
    BRONZE_APPENDED = "between bronze and dead letters"
    DEAD_LETTERS_PREPARED = "between look and commit of dead letters"
    DEAD_LETTERS_APPENDED = "between dead letters and ledger"
    LEDGER_PREPARED = "between look and commit of the ledger"
    LEDGER_APPENDED = "after the last append, before the checkpoint's commit"
    SILVER_DECIDED = "after silver's verdicts, nothing committed"
    CONFLICTS_PREPARED = "between look and commit of silver's conflicts"
    CONFLICTS_APPENDED = "between silver's conflicts and late rows"
    LATE_PREPARED = "between look and commit of silver's late rows"
    LATE_APPENDED = "between silver's late rows and ledger"
    SILVER_LEDGER_PREPARED = "between look and commit of silver's ledger"
    SILVER_LEDGER_APPENDED = "between silver's ledger and silver"
    SILVER_PREPARED = "between look and commit of silver"
    SILVER_APPENDED = "after the commit of silver"
    GOLD_COMPUTED = "after gold's windows, nothing committed"
    GOLD_PREPARED = "between look and commit of gold"
    GOLD_UPSERTED = "after the commit of gold"
    REBUILD_FILLED = "before the new tables of a rebuild replace the old ones"
    JUDGED_AGAIN = "while dead letters are judged again"
    ATTEMPTS_PREPARED = "between look and commit of attempts"
    ATTEMPTS_APPENDED = "between attempts and bronze"
    PAUSING = "while a pause is recorded"
    PAUSED = "after a pause was recorded"
    ACCEPTING = "while an acceptance is recorded"
    ACCEPTED = "after an acceptance was recorded"
    PAUSE_ENDING = "while the end of a pause is recorded"
    DEAD_LETTERS_SENT = "between the messages of dead letters and their position"
    SILVER_SENT = "between silver's messages and their position"
    GOLD_SENT = "between gold's messages and their position"
    REWRITING = "before files are rewritten"
    REWRITTEN = "after files were rewritten, nothing proven"
    PROVEN = "after a compaction was proven"
    SWAPPING = "between look and commit of a compaction"
    SWAPPED = "after a compaction was published"
    EXPIRING = "before snapshots expire"
    EXPIRED = "after snapshots have expired"


OF_BRONZE_STEPS = tuple(Step)[: list(Step).index(Step.SILVER_DECIDED)]
"""Steps of bronze."""
LAYER_STEPS = tuple(Step)[list(Step).index(Step.SILVER_DECIDED) : list(Step).index(Step.REBUILD_FILLED)]
"""Steps of silver and gold."""
REPLAY_STEPS = (
    Step.BEFORE_JUDGEMENT,
    Step.JUDGED_AGAIN,
    Step.AFTER_JUDGEMENT,
    Step.ATTEMPTS_PREPARED,
    Step.ATTEMPTS_APPENDED,
    Step.BRONZE_PREPARED,
    Step.BRONZE_APPENDED,
    Step.DEAD_LETTERS_PREPARED,
    Step.DEAD_LETTERS_APPENDED,
    Step.LEDGER_PREPARED,
    Step.LEDGER_APPENDED,
)
"""Steps of a replay, in order; some are also steps of a micro-batch of landed data."""
PAUSE_STEPS = tuple(Step)[list(Step).index(Step.PAUSING) : list(Step).index(Step.DEAD_LETTERS_SENT)]
"""Steps of a breaker that pauses."""
SINK_STEPS = (Step.DEAD_LETTERS_SENT, Step.SILVER_SENT, Step.GOLD_SENT)
"""Steps of sinks, which only occur in lakes with sinks."""


MAINTENANCE_STEPS = tuple(Step)[list(Step).index(Step.REWRITING) :]
"""Steps of a maintenance beside the stream, or as a command."""


class Act(StrEnum):
    """Action of a hook."""

    KILL = "kill"
    """Send SIGKILL to the hook's own process group."""
    SUSPEND = "suspend"
    """Send SIGSTOP to the hook's own process group."""
    WAIT = "wait"
    """Wait until the order is taken back."""

    @property
    def number(self) -> signal.Signals:
        """The signal that is sent to the process."""
        return signal.SIGSTOP if self is Act.SUSPEND else signal.SIGKILL


@dataclass(frozen=True)
class Order:
    """Do `act` at the next `step`. `number` distinguishes orders."""

    number: int
    step: Step
    act: Act


class Orders:
    """The file of orders, with the victim's receipt beside it.

    Parameters
    ----------
    file
        Path of the file.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._receipt = file.with_suffix(".struck")

    def give(self, step: Step, act: Act) -> None:
        """Give an order, which replaces an earlier one."""
        last = self._read()
        self._receipt.unlink(missing_ok=True)
        write_whole(self.file, msgspec.json.encode(asdict(Order((last.number if last else 0) + 1, step, act))))

    def take_back(self) -> None:
        """Withdraw the order; a victim that waits continues."""
        self.file.unlink(missing_ok=True)

    def struck(self) -> bool:
        """Return whether the victim has reached the step of the newest order."""
        return self._receipt.exists()

    def obey(self, step: Step, strike: Callable[[Act], None]) -> None:
        """Obey the order for this step, if there is one; called by the victim at each step."""
        order = self._read()
        if order is None or order.step != step or self.struck():
            return
        write_whole(self._receipt, b"")
        if order.act is Act.WAIT:
            while self._read() == order:
                time.sleep(0.02)
        else:
            strike(order.act)

    def _read(self) -> Order | None:
        try:
            return msgspec.json.decode(self.file.read_bytes(), type=Order)
        except FileNotFoundError:
            return None


def write_whole(file: Path, data: bytes) -> None:
    """Write a file atomically for readers."""
    temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data)
    temporary.replace(file)
