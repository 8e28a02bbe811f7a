"""The micro-batches that are complete in a table."""

from dataclasses import dataclass
from typing import Any

from reader.connect import Session

_NEAR = 100  # micro-batches before the last one, of which one may have been interrupted


@dataclass(frozen=True)
class Reach:
    """Micro-batches that are complete in a table: all before a number, except for a few unfinished ones."""

    before: int = 0
    but: tuple[int, ...] = ()

    def is_beyond(self, column: str) -> str:
        """Return SQL that is true for rows of other micro-batches; false for null, unless the reach is empty."""
        if not self.before:
            return "true"  # nothing is proven, or the table is empty
        later = f"{column} >= {self.before}"
        if self.but:
            later = f"{column} >= {min(self.but)} AND ({later} OR {column} IN ({', '.join(map(str, self.but))}))"
        return f"coalesce({later}, false)"

    def as_json(self) -> dict[str, Any]:
        """Return the reach in the form in which the book stores it."""
        return {"before": self.before, "but": self.but}


def reach_of(session: Session, ledger: str) -> Reach:
    """Return the micro-batches in a ledger; an interrupted one may be finished after a later one."""
    ((last,),) = session.fetch(f"SELECT max(micro_batch_id) FROM {ledger}")
    if last is None:
        return Reach()
    lacking = session.fetch(
        f"SELECT number FROM range({max(last - _NEAR, 0)}, {last}) AS numbers(number) "
        f"ANTI JOIN {ledger} ON micro_batch_id = number ORDER BY number"
    )
    return Reach(last + 1, tuple(number for (number,) in lacking))
