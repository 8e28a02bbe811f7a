"""From the bytes of a batch to judged units: each is good or bad, once."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import structlog

from consumer.judge.exact import Drifted, ExactJudge
from consumer.judge.judged import (
    Bad,
    Fault,
    Judged,
    Together,
    drift_column,
    good_records,
    reasons_column,
    value_columns,
)
from consumer.judge.native import Chunk, NativeJudge, Units, UnsupportedError, no_chunk
from consumer.judge.rule_checks import RulesJudge
from consumer.judge.split import Refused, TooLarge, split
from lakeproof.contracts import Contract
from lakeproof.install.judges import JudgeName, judge_choice
from lakeproof.reasons import Reason
from lakeproof.settings import Limits
from lakeproof.tables.names import SOURCE

log = structlog.get_logger()

MAX_UNITS = 10_000
"""Units in an Arrow batch."""
MAX_BYTES = 16 << 20
"""Bytes of the units in an Arrow batch, unless a single one has more."""


class Judge:
    """Holds the units of batches to a contract. Can be pickled; it is compiled where it is used.

    Parameters
    ----------
    contract
        The contract of the stream.
    limits
        How large a record may be: a larger one is not judged, and a dead letter does not keep more. By default those
        of the settings.
    choice
        Value of LAKE_JUDGE.
    """

    def __init__(self, contract: Contract, limits: Limits | None = None, choice: JudgeName = "auto") -> None:
        # A record cannot have a field that was dropped: to the judge, it is unknown.
        self.contract = replace(contract, fields=contract.live)
        self.limits = limits or Limits()
        self.choice = choice

    def __reduce__(self) -> tuple[type["Judge"], tuple[Contract, Limits, JudgeName]]:
        return Judge, (self.contract, self.limits, self.choice)

    def judge(self, value: bytes | memoryview | pa.Buffer) -> Iterator[Judged]:
        """Split a batch and judge its units.

        Parameters
        ----------
        value
            The batch as landed, decompressed. Any bytes will do.

        Yields
        ------
        Judged
            A run of units, at most :data:`MAX_UNITS`; nothing for an array of no records. A batch that cannot be split
            is one bad unit, with position 0 and `value` as it is. What is larger than a record may be has null in place
            of its bytes.
        """
        batch = value if isinstance(value, bytes) else bytes(value)
        return (found.judged for found in self.judge_together([batch]))

    def judge_together(self, batches: Sequence[bytes]) -> Iterator[Together]:
        """Judge batches at once, each as :meth:`judge` does: messages of one record are 20 times as fast so.

        Parameters
        ----------
        batches
            At most :data:`MAX_UNITS`, unless it is one.
        """
        following = 0, 0
        if self._native:
            try:
                for chunk in self._native.judge(batches, self.limits.record_bytes, MAX_UNITS, MAX_BYTES):
                    yield from self._of_chunk(chunk, batches)
                    following = chunk.following
            except RuntimeError as error:  # of the native judge, which is to blame, and not the batch
                log.warning("judge_replaced", error=str(error), batch=following[0], position=following[1])
            else:
                return
        yield from self._judge_exactly(batches, *following)

    def refuse(self, code: Reason | str, detail: str, value: bytes | None) -> Iterator[Judged]:
        """Make a whole batch a dead letter.

        Parameters
        ----------
        code, detail
            Why.
        value
            Its bytes, to be kept if they are not too many; None if they cannot be had.

        Yields
        ------
        Judged
            One bad unit, as from :meth:`judge`.
        """
        faults = [Fault(Reason(code), "$", detail)]
        if value is not None and len(value) > self.limits.record_bytes:
            faults.append(Fault(Reason.BATCH_TOO_LARGE, "$", self._too_large(len(value))))
            value = None
        yield self._dead_letter(0, faults, value)

    def _of_chunk(self, chunk: Chunk, batches: Sequence[bytes]) -> Iterator[Together]:
        """Complete what the native judge made of units."""
        for number in chunk.refused:
            yield from self._judge_exactly(batches[: number + 1], number)
        for number, position, size in chunk.too_large.sizes():
            yield _of(number, self._too_large_record(position, TooLarge(size)))
        if len(chunk.good) or len(chunk.bad) or len(chunk.undecided):
            yield self._together(chunk, batches, _units_of(chunk.undecided, batches))

    def _judge_exactly(self, batches: Sequence[bytes], first: int, first_position: int = 0) -> Iterator[Together]:
        """Judge the units of batches from a unit on, one by one."""
        units: list[_Unit] = []
        size = 0
        for number, batch in enumerate(batches):
            if number < first:
                continue
            found = split(batch, self.limits.record_bytes)
            if isinstance(found, Refused):
                yield from (_of(number, judged) for judged in self.refuse(found.code, found.detail, batch))
                continue
            for position, unit in enumerate(found):
                if number == first and position < first_position:
                    continue
                if units and (isinstance(unit, TooLarge) or len(units) == MAX_UNITS or size + len(unit) > MAX_BYTES):
                    yield self._together(no_chunk(self.contract), batches, units)
                    units, size = [], 0
                if isinstance(unit, TooLarge):
                    yield _of(number, self._too_large_record(position, unit))
                    continue
                units.append(_Unit(number, position, unit))
                size += len(unit)
        if units:
            yield self._together(no_chunk(self.contract), batches, units)

    def _together(self, chunk: Chunk, batches: Sequence[bytes], left: Sequence["_Unit"]) -> Together:
        """What came of units, of which the exact judge is to judge those that are `left`."""
        good: list[_Unit] = []
        records: list[dict[str, Any]] = []
        drifted: dict[int, Drifted] = {}
        bad: list[tuple[_Unit, list[Fault]]] = []
        first = len(chunk.good)
        for unit in left:
            verdict = self._exact.judge(unit.raw)
            if isinstance(verdict, list):
                bad.append((unit, verdict))
                continue
            if isinstance(verdict, Drifted):
                drifted[first + len(good)] = verdict
                verdict = verdict.values
            good.append(unit)
            records.append(verdict)
        columns, drift = chunk.columns, chunk.drift
        good_of, positions = chunk.good.of, chunk.good.positions
        if good:
            of_exact = value_columns(records, self.contract)
            columns = [pa.concat_arrays(pair) for pair in zip(columns, of_exact, strict=True)]
            values = (drifted[row].drift if row in drifted else () for row in range(first, first + len(good)))
            drift = pa.concat_arrays([drift, drift_column(values)])
            good_of = np.append(good_of, [unit.of for unit in good])
            positions = np.append(positions, [unit.position for unit in good])
        if self.contract.rules and (broken := self._rules.judge(columns)):
            for row, faults in broken.items():
                unit = good[row - first] if row >= first else _units_of(chunk.good.take([row]), batches)[0]
                # All reasons: also those that alone would have let it pass.
                bad.append((unit, (drifted[row].faults if row in drifted else []) + faults))
            kept = np.setdiff1d(np.arange(len(positions)), list(broken))
            columns = [column.take(pa.array(kept)) for column in columns]
            drift, good_of, positions = drift.take(pa.array(kept)), good_of[kept], positions[kept]
        bad_of, bad_positions = chunk.bad.of, chunk.bad.positions
        reasons, raw = chunk.reasons, chunk.raw
        if bad:
            bad.sort(key=lambda each: each[0][:2])
            bad_of = np.append(bad_of, [unit.of for unit, _ in bad])
            bad_positions = np.append(bad_positions, [unit.position for unit, _ in bad])
            reasons = pa.concat_arrays([reasons, reasons_column([faults for _, faults in bad])])
            raw = pa.concat_arrays([raw, pa.array([unit.raw for unit, _ in bad], pa.binary())])
        return Together(
            Judged(
                good_records(self.contract, positions, columns, drift),
                Bad(pa.array(bad_positions, pa.int64()), reasons, raw),
            ),
            good_of.tolist(),
            bad_of.tolist(),
        )

    def _too_large_record(self, position: int, unit: TooLarge) -> Judged:
        return self._dead_letter(position, [Fault(Reason.RECORD_TOO_LARGE, "$", self._too_large(unit.size))], None)

    def _too_large(self, size: int) -> str:
        limit = f"LAKE_MAX_RECORD_BYTES is {self.limits.record_bytes:,}"
        return f"{size:,} bytes, but {limit}; the content is only in the landed file (see {SOURCE})"

    def _dead_letter(self, position: int, faults: list[Fault], raw: bytes | None) -> Judged:
        nothing = no_chunk(self.contract)
        bad = Bad(pa.array([position], pa.int64()), reasons_column([faults]), pa.array([raw], pa.binary()))
        return Judged(good_records(self.contract, nothing.good.positions, nothing.columns, nothing.drift), bad)

    @cached_property
    def _native(self) -> NativeJudge | None:
        if judge_choice(self.choice).name == "python":
            return None
        try:
            return NativeJudge(self.contract)
        except UnsupportedError as error:
            log.info("judge_is_python", reason=str(error))
            return None

    @cached_property
    def _exact(self) -> ExactJudge:
        return ExactJudge(self.contract)

    @cached_property
    def _rules(self) -> RulesJudge:
        return RulesJudge(self.contract)


class _Unit(NamedTuple):
    of: int  # index of its batch
    position: int
    raw: bytes


def _units_of(units: Units, batches: Sequence[bytes]) -> list[_Unit]:
    raws = units.cut(batches)
    return [_Unit(*each) for each in zip(units.of.tolist(), units.positions.tolist(), raws, strict=True)]


def _of(number: int, judged: Judged) -> Together:
    return Together(judged, [number] * len(judged.good), [number] * len(judged.bad))
