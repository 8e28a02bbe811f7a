"""From the bytes of a batch to Arrow batches of judged units: each is in exactly one of them, once."""

from collections.abc import Iterator, Sequence
from functools import cached_property

import pyarrow as pa

from consumer.bronze.columns import (
    ArrowColumn,
    ArrowField,
    Fault,
    drift_columns,
    drift_fields,
    fault_column,
    judged_schema,
    value_columns,
)
from consumer.bronze.exact import Drifted, ExactJudge
from consumer.bronze.fast import FastJudge
from consumer.bronze.rules import RulesJudge
from consumer.bronze.split import Refused, split
from lakeproof.contracts import Contract
from lakeproof.reasons import Reason
from lakeproof.tables import POSITION

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
    """

    def __init__(self, contract: Contract) -> None:
        self.contract = contract

    def __reduce__(self) -> tuple[type["Judge"], tuple[Contract]]:
        return Judge, (self.contract,)

    def judge(self, value: bytes | memoryview | pa.Buffer) -> Iterator[pa.RecordBatch]:
        """Split a batch and judge its units.

        Parameters
        ----------
        value
            The batch as landed, decompressed. Any bytes will do.

        Yields
        ------
        pa.RecordBatch
            A row per unit: first those of records that meet the contract, then the others; columns of
            :func:`consumer.bronze.columns.judged_schema`. Nothing for an array of no records. A batch that cannot be
            split is one row, with position 0 and `value` as it is.
        """
        batch = value if isinstance(value, bytes) else bytes(value)
        if whole := self._judge_whole(batch):
            yield whole
            return
        units = split(batch)
        if isinstance(units, Refused):
            yield from self.refuse(units.code, units.detail, batch)
            return
        position = 0
        for chunk in _chunks(units):
            yield self._judge_units(chunk, position)
            position += len(chunk)

    def refuse(self, code: Reason | str, detail: str, value: bytes) -> Iterator[pa.RecordBatch]:
        """Make a whole batch a dead letter.

        Yields
        ------
        pa.RecordBatch
            One row, as from :meth:`judge`.
        """
        fault = Fault(Reason(code), "$", detail)
        yield self._batch([], [pa.nulls(0, column.type) for column in self._value_fields], [0], [[fault]], [value])

    def _judge_whole(self, batch: bytes) -> pa.RecordBatch | None:
        """Judge a batch of which each record meets the contract; None for any other, and for one that is large."""
        if len(batch) > _MAX_WHOLE_BYTES:
            return None
        accepted = self._fast.judge_array(batch, MAX_UNITS)
        if accepted is None:
            return None
        count, columns = accepted
        if self.contract.rules and self._rules.judge(columns):
            return None
        if drift_fields(self.contract):
            columns += drift_columns([()] * count, self.contract)
        return self._batch(range(count), columns, [], [], [])

    def _judge_units(self, units: Sequence[bytes], first: int) -> pa.RecordBatch:
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
        if drift_fields(self.contract):
            columns += drift_columns(
                [drifted[index].drift if index in drifted else () for index in good], self.contract
            )
        return self._batch(
            [first + index for index in good],
            columns,
            [first + index for index in bad],
            list(bad.values()),
            [units[index] for index in bad],
        )

    def _batch(
        self,
        good_positions: Sequence[int],
        good_columns: list[ArrowColumn],
        bad_positions: Sequence[int],
        faults: Sequence[Sequence[Fault]],
        raws: Sequence[bytes],
    ) -> pa.RecordBatch:
        """Rows of records that meet the contract, then of other units."""
        good, bad = len(good_positions), len(bad_positions)
        columns = [_joined(column, pa.nulls(bad, column.type)) for column in good_columns]
        positions = pa.array([*good_positions, *bad_positions], pa.int64())
        reasons = fault_column(faults)
        raw = pa.array(raws, pa.binary())
        return pa.RecordBatch.from_arrays(
            [
                *columns,
                positions,
                _joined(pa.nulls(good, reasons.type), reasons),
                _joined(pa.nulls(good, raw.type), raw),
            ],
            schema=self._schema,
        )

    @cached_property
    def _schema(self) -> pa.Schema:
        return judged_schema(self.contract)

    @property
    def _value_fields(self) -> list[ArrowField]:
        return list(self._schema)[: self._schema.get_field_index(POSITION)]

    @cached_property
    def _fast(self) -> FastJudge:
        return FastJudge(self.contract)

    @cached_property
    def _exact(self) -> ExactJudge:
        return ExactJudge(self.contract)

    @cached_property
    def _rules(self) -> RulesJudge:
        return RulesJudge(self.contract)


def _joined(first: ArrowColumn, second: ArrowColumn) -> ArrowColumn:
    """Both, one after the other; without a copy where one is empty."""
    if not len(second):
        return first
    return pa.concat_arrays([first, second]) if len(first) else second


def _chunks(units: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Cut the units into runs that fit an Arrow batch."""
    chunk: list[bytes] = []
    size = 0
    for unit in units:
        if chunk and (len(chunk) == MAX_UNITS or size + len(unit) > MAX_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(unit)
        size += len(unit)
    if chunk:
        yield chunk
