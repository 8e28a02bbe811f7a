"""From the bytes of a batch to judged units: each is good or bad, once."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

import pyarrow as pa

from consumer.judge.exact import Drifted, ExactJudge
from consumer.judge.fast import FastJudge
from consumer.judge.judged import (
    ArrowColumn,
    Bad,
    Fault,
    Good,
    Judged,
    Together,
    bad_units,
    good_records,
    value_columns,
    value_schema,
)
from consumer.judge.rule_checks import RulesJudge
from consumer.judge.split import Refused, TooLarge, Unit, split
from lakeproof.contracts import Contract
from lakeproof.reasons import Reason
from lakeproof.settings import Limits
from lakeproof.tables.names import SOURCE

MAX_UNITS = 10_000
"""Units in an Arrow batch."""
MAX_BYTES = 16 << 20
"""Bytes of the units in an Arrow batch, unless a single one has more."""
# A batch of empty objects makes an object of some 80 bytes for each three of its own.
_MAX_WHOLE_BYTES = 4 << 20


class Judge:
    """Holds the units of batches to a contract. Can be pickled; it is compiled where it is used.

    Parameters
    ----------
    contract
        The contract of the stream.
    limits
        How large a record may be: a larger one is not judged, and a dead letter does not keep more. By default those
        of the settings.
    """

    def __init__(self, contract: Contract, limits: Limits | None = None) -> None:
        # A record cannot have a field that was dropped: to the judge, it is unknown.
        self.contract = replace(contract, fields=contract.live)
        self.limits = limits or Limits()

    def __reduce__(self) -> tuple[type["Judge"], tuple[Contract, Limits]]:
        return Judge, (self.contract, self.limits)

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
        if whole := self._judge_whole(batch):
            yield whole
            return
        units = split(batch, self.limits.record_bytes)
        if isinstance(units, Refused):
            yield from self.refuse(units.code, units.detail, batch)
            return
        position = 0
        for chunk in _chunks(units):
            if isinstance(chunk, TooLarge):
                yield self._too_large_record(position, chunk)
                position += 1
            else:
                yield self._judge_units(chunk, position)
                position += len(chunk)

    def judge_together(self, batches: Sequence[bytes]) -> Iterator[Together]:
        """Judge small batches at once, each as :meth:`judge` does: messages of one record are 20 times as fast so.

        Parameters
        ----------
        batches
            At most :data:`MAX_UNITS`.
        """
        accepted, columns = self._accept_whole(batches)
        if accepted:
            count = len(accepted)
            good = good_records(self.contract, [0] * count, columns, [()] * count)
            yield Together(Judged(good, bad_units([], [], [])), accepted, ())
            if count == len(batches):
                return
        done = set(accepted)
        units: list[bytes] = []
        places: list[tuple[int, int]] = []
        for number, batch in enumerate(batches):
            if number in done:
                continue
            found = split(batch, self.limits.record_bytes)
            if isinstance(found, Refused):
                yield from (_of(number, judged) for judged in self.refuse(found.code, found.detail, batch))
                continue
            for position, unit in enumerate(found):
                if isinstance(unit, TooLarge):
                    yield _of(number, self._too_large_record(position, unit))
                    continue
                units.append(unit)
                places.append((number, position))
                if len(units) == MAX_UNITS:
                    yield self._judge_places(units, places)
                    units, places = [], []
        if units:
            yield self._judge_places(units, places)

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

    def _accept_whole(self, batches: Sequence[bytes]) -> tuple[list[int], list[ArrowColumn]]:
        """Indexes of the batches that are one record each which meets the contract for certain, and its columns."""
        # What is read as an object from its first byte to its last is one unit: the batch itself.
        single = [
            number
            for number, batch in enumerate(batches)
            if batch.startswith(b"{") and len(batch) <= self.limits.record_bytes
        ]
        accepted, columns = self._fast.judge([batches[number] for number in single])
        if self.contract.rules and (broken := self._rules.judge(columns)):
            kept = [row for row in range(len(accepted)) if row not in broken]
            columns = [column.take(pa.array(kept, pa.int64())) for column in columns]
            accepted = [accepted[row] for row in kept]
        return [single[index] for index in accepted], columns

    def _judge_places(self, units: Sequence[bytes], places: Sequence[tuple[int, int]]) -> Together:
        """Judge units of several batches, each with the number of its batch and its position in it."""
        judged = self._judge_units(units, 0)
        good, bad = judged.good, judged.bad
        of = [[places[index] for index in part.positions.to_numpy()] for part in (good, bad)]
        return Together(
            Judged(_at(good, of[0]), _at(bad, of[1])),
            [number for number, _ in of[0]],
            [number for number, _ in of[1]],
        )

    def _too_large_record(self, position: int, unit: TooLarge) -> Judged:
        return self._dead_letter(position, [Fault(Reason.RECORD_TOO_LARGE, "$", self._too_large(unit.size))], None)

    def _too_large(self, size: int) -> str:
        limit = f"LAKE_MAX_RECORD_BYTES is {self.limits.record_bytes:,}"
        return f"{size:,} bytes, but {limit}; the content is only in the landed file (see {SOURCE})"

    def _dead_letter(self, position: int, faults: list[Fault], raw: bytes | None) -> Judged:
        nothing = [pa.nulls(0, field.type) for field in value_schema(self.contract)]
        return Judged(good_records(self.contract, [], nothing, []), bad_units([position], [faults], [raw]))

    def _judge_whole(self, batch: bytes) -> Judged | None:
        """Judge a batch of which each record meets the contract; None for any other, and for one that is large."""
        if len(batch) > min(_MAX_WHOLE_BYTES, self.limits.record_bytes):
            return None
        accepted = self._fast.judge_array(batch, MAX_UNITS)
        if accepted is None:
            return None
        count, columns = accepted
        if self.contract.rules and self._rules.judge(columns):
            return None
        return Judged(good_records(self.contract, range(count), columns, [()] * count), bad_units([], [], []))

    def _judge_units(self, units: Sequence[bytes], first: int) -> Judged:
        """Judge units, of which the first has the position `first`."""
        accepted, columns = self._fast.judge(units)
        good = list(accepted)
        bad: dict[int, list[Fault]] = {}
        drifted: dict[int, Drifted] = {}
        if len(accepted) < len(units):
            records = []
            fast = set(accepted)
            for index, unit in enumerate(units):
                if index not in fast:
                    verdict = self._exact.judge(unit)
                    if isinstance(verdict, list):
                        bad[index] = verdict
                        continue
                    if isinstance(verdict, Drifted):
                        drifted[index] = verdict
                        verdict = verdict.values
                    good.append(index)
                    records.append(verdict)
            if records:
                exact_columns = value_columns(records, self.contract)
                columns = [pa.concat_arrays(pair) for pair in zip(columns, exact_columns, strict=True)]
        if self.contract.rules and (broken := self._rules.judge(columns)):
            # All reasons: also those that alone would have let it pass.
            drift = {row: drifted[good[row]].faults for row in broken if good[row] in drifted}
            bad |= {good[row]: drift.get(row, []) + faults for row, faults in broken.items()}
            bad = dict(sorted(bad.items()))
            kept = pa.array([row for row in range(len(good)) if row not in broken], pa.int64())
            columns = [column.take(kept) for column in columns]
            good = [index for index in good if index not in bad]
        values = [drifted[index].drift if index in drifted else () for index in good]
        return Judged(
            good_records(self.contract, [first + index for index in good], columns, values),
            bad_units([first + index for index in bad], list(bad.values()), [units[index] for index in bad]),
        )

    @cached_property
    def _fast(self) -> FastJudge:
        return FastJudge(self.contract)

    @cached_property
    def _exact(self) -> ExactJudge:
        return ExactJudge(self.contract)

    @cached_property
    def _rules(self) -> RulesJudge:
        return RulesJudge(self.contract)


_PartT = TypeVar("_PartT", Good, Bad)


def _at(part: _PartT, places: Sequence[tuple[int, int]]) -> _PartT:
    return replace(part, positions=pa.array([position for _, position in places], pa.int64()))


def _of(number: int, judged: Judged) -> Together:
    return Together(judged, [number] * len(judged.good), [number] * len(judged.bad))


def _chunks(units: Iterator[Unit]) -> Iterator[list[bytes] | TooLarge]:
    """Cut the units into runs that fit an Arrow batch; one that is too large comes alone."""
    chunk: list[bytes] = []
    size = 0
    for unit in units:
        if chunk and (isinstance(unit, TooLarge) or len(chunk) == MAX_UNITS or size + len(unit) > MAX_BYTES):
            yield chunk
            chunk, size = [], 0
        if isinstance(unit, TooLarge):
            yield unit
            continue
        chunk.append(unit)
        size += len(unit)
    if chunk:
        yield chunk
