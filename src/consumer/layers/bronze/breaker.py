"""The breaker: warn or pause when too many units of a stream are bad, before anything of a micro-batch is committed.

A pause is recorded in the state database with the range of the micro-batch. The next run takes exactly this range first
(``queries/bronze.py``), so that no restart cuts it into pieces that are too small for the breaker.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from pyiceberg import expressions

from consumer.iceberg.marker import Marker
from consumer.layers.bronze.ledger import MicroBatch, Outcome
from consumer.layers.bronze.trips import MICRO_BATCH, BadUnit, described, ways_on
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.contracts import Breaker, BreakerAction
from lakeproof.contracts.duration import duration_text
from lakeproof.errors import PausedError
from lakeproof.settings import Settings
from lakeproof.state.breaker_log import BreakerLog, QueryKind, Trip
from lakeproof.tables.names import INGESTED_AT, REPLAY, stream_tables

log = structlog.get_logger()
compare: Any = expressions  # mypy does not see the arguments that pydantic takes

EVENT = "breaker tripped"
_EXAMPLES = 3
_COLUMNS = (INGESTED_AT, "units", "dead_letters")


@dataclass(frozen=True)
class Taken:
    """A judged micro-batch: its time, its number of units, and its bad units by set of reasons."""

    at: datetime
    units: int
    reasons: Counter[str]

    @classmethod
    def of(cls, at: datetime, outcomes: Mapping[Outcome, int]) -> "Taken":
        """Count the outcomes of a micro-batch."""
        reasons = Counter[str]()
        for (_, codes), count in outcomes.items():
            if codes is not None:
                reasons[codes] += count
        return cls(at, sum(outcomes.values()), reasons)

    @property
    def bad(self) -> int:
        """Number of bad units."""
        return self.reasons.total()


class Watch:
    """Watches the share of bad units of a stream."""

    def __init__(self, settings: Settings, stream: str) -> None:
        self._settings = settings
        self._stream = stream
        self._log = BreakerLog(settings.state.database, stream)
        self._recent: list[Taken] = []
        self._read_over: timedelta | None = None  # length of time that `_recent` covers; None if it must be read

    def check(
        self,
        marker: Marker,
        batch: MicroBatch,
        outcomes: Mapping[Outcome, int],
        examples: Mapping[str, BadUnit],
        paused: Trip | None,
    ) -> None:
        """If too many units are bad, warn or raise PausedError, as the contract says.

        `paused` is the earlier pause of a micro-batch that is judged again. Call :meth:`committed` after all commits.
        """
        breaker = batch.contract.breaker
        found = self._found(breaker, Taken.of(batch.ingested_at, outcomes), paused)
        if found is None:
            return
        total, over = found
        shown = sorted(examples, key=lambda reasons: -total.reasons[reasons])[:_EXAMPLES]
        facts = {
            "share": round(total.bad / total.units, 4),
            "bad": total.bad,
            "units": total.units,
            "over": duration_text(over) if over else MICRO_BATCH,
            "limit": {"share": float(breaker.share), "units": breaker.units},
            "contract": batch.contract.version,
            "reasons": dict(total.reasons.most_common()),
            "examples": [asdict(examples[reasons]) for reasons in shown],
        }
        if breaker.action is BreakerAction.WARN:
            log.warning(EVENT, stream=self._stream, action="warn", **facts)
            self._log.warn(facts)
        elif paused and paused.accepted_at:
            log.warning(EVENT, stream=self._stream, action="accepted", accepted_at=str(paused.accepted_at), **facts)
        else:
            log.warning(EVENT, stream=self._stream, action="pause", **facts)
            query = QueryKind.PAST if marker.checkpoint_id == QueryKind.PAST else QueryKind.STREAM
            self._log.pause(query, (marker.start, marker.end, marker.checkpoint_id), facts, paused)
            raise PausedError(
                f"{self._stream} is paused: {described(facts)}. Nothing of the micro-batch was committed.",
                ways_on(self._stream),
                [str(examples[reasons]) for reasons in shown],
            )

    def committed(self, batch: MicroBatch, outcomes: Mapping[Outcome, int], paused: Trip | None) -> None:
        """Count a micro-batch that is in the ledger; after a pause, counting starts over."""
        if paused:
            self._log.end(paused)
            self._read_over = None
        elif self._read_over:
            # Only a bad unit asks for them: a good stream would keep all that it ever took.
            while self._recent and self._recent[0].at <= batch.ingested_at - self._read_over:
                del self._recent[0]
            self._recent.append(Taken.of(batch.ingested_at, outcomes))

    def _found(self, breaker: Breaker, taken: Taken, paused: Trip | None) -> tuple[Taken, timedelta | None] | None:
        """Return the counts that trip the breaker, of the micro-batch or of the time counted; None if none do."""
        if not taken.bad:
            return None
        if breaker.trips(taken.bad, taken.units):
            return taken, None
        if breaker.over is None:
            return None
        # A micro-batch that is judged again counts with the same earlier ones as before, however long ago that was.
        now = paused.tripped_at if paused else taken.at
        earlier = self._since(now - breaker.over, breaker.over, fresh=paused is not None)
        units = taken.units + sum(each.units for each in earlier)
        reasons = sum((each.reasons for each in earlier), taken.reasons.copy())
        total = Taken(taken.at, units, reasons)
        return (total, breaker.over) if breaker.trips(total.bad, units) else None

    def _since(self, since: datetime, over: timedelta, *, fresh: bool) -> list[Taken]:
        """Return the micro-batches since a time, and forget older ones."""
        if fresh or self._read_over is None or self._read_over < over:
            last_end = self._log.last_end()
            self._recent = self._read(max(since, last_end) if last_end else since)
            self._read_over = None if fresh else over
        self._recent = [each for each in self._recent if each.at > since]
        return self._recent

    def _read(self, since: datetime) -> list[Taken]:
        with catalog_errors():
            ledger = open_catalog(self._settings).load_table(stream_tables(self._stream).ledger)
            # Replayed units were counted when they landed.
            wanted = compare.And(compare.GreaterThan(INGESTED_AT, since.isoformat()), compare.IsNull(REPLAY))
            scan = ledger.scan(wanted, selected_fields=_COLUMNS)
            rows: list[dict[str, Any]] = scan.to_arrow().to_pylist()
        units, reasons = Counter[datetime](), dict[datetime, Counter[str]]()
        for row in rows:
            units[row[INGESTED_AT]] += row["units"]
            reasons.setdefault(row[INGESTED_AT], Counter()).update(dict(row["dead_letters"] or ()))
        return [Taken(at, units[at], reasons[at]) for at in sorted(reasons)]
