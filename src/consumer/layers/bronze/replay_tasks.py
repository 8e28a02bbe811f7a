"""Judge dead letters again in Spark's tasks, and write the data files of the results."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from consumer.layers.bronze.replayed import (
    ETAG,
    EXAMPLES,
    TRANSFORMED,
    TRIED,
    Fate,
    LetterExample,
    Replayed,
    ReplayTask,
)
from consumer.layers.bronze.rows import Origins, bronze_rows, dead_letter_rows, drift_sets
from consumer.layers.bronze.tasks import writer_for
from consumer.layers.bronze.transform import Apply
from consumer.row_hashes import row_hashes
from consumer.sources.envelope import Recovered
from lakeproof.errors import LakeproofError
from lakeproof.judge.batch import MAX_BYTES, MAX_UNITS, Judge
from lakeproof.judge.judged import Fault, Judged, reasons_column
from lakeproof.judge.split import Refused, complete_units, salvage, split
from lakeproof.kafka.offsets import partition_name
from lakeproof.reasons import OF_BATCHES, WITHOUT_BYTES, Reason, reason_sets
from lakeproof.tables import names as tables
from lakeproof.tables.names import ReplayOutcome

_VALUES = (tables.SOURCE, tables.POSITION, tables.RAW, tables.ATTEMPT, TRIED)
_EXCERPT = 200
_TIMESTAMP = pa.timestamp("us", tz="UTC")


class JudgedOtherwiseError(LakeproofError):
    """An interrupted replay cannot be finished with the outcomes that it recorded."""


def replay(batches: Iterable[pa.RecordBatch], task: ReplayTask) -> Replayed:
    """Judge dead letters again, and write the data files."""
    work = _Work(task)
    for batch in batches:
        most = max(1, min(MAX_UNITS, batch.num_rows * MAX_BYTES // max(batch.nbytes, 1)))
        for start in range(0, batch.num_rows, most):
            work.take(batch.slice(start, most))
    return work.close()


class _Letters:
    """Dead letters as columns."""

    def __init__(self, rows: pa.RecordBatch, *, of_topic: bool) -> None:
        self.rows = rows
        values: dict[str, list[Any]] = {name: rows.column(name).to_pylist() for name in _VALUES}
        self.sources: list[str] = values[tables.SOURCE]
        self.positions: list[int] = values[tables.POSITION]
        self.sets = reason_sets(rows.column(tables.REASONS))
        self.raws: list[bytes | None] = values[tables.RAW]
        self.parts = [partition_name(source) if of_topic else source for source in self.sources]
        letters = values[tables.ATTEMPT]
        of_batch = {each: not OF_BATCHES.isdisjoint(each.split("+")) for each in set(self.sets)}
        self.of_batch = [letter == 1 and of_batch[each] for letter, each in zip(letters, self.sets, strict=True)]
        # Attempt 1 is the landing itself.
        self.tried: list[int] = [1 if number is None else number for number in values[TRIED]]
        columns: dict[str, Any] = {
            tables.SOURCE: rows.column(tables.SOURCE),
            tables.LANDED_AT: rows.column(tables.LANDED_AT).cast(_TIMESTAMP),
        }
        if of_topic:
            columns |= {name: rows.column(name) for name in (tables.KEY, tables.HEADERS)}
        self.origins = Origins(self.parts, columns)

    def __len__(self) -> int:
        return self.rows.num_rows


@dataclass
class _Outcome:
    """The outcome of a letter. A record that passed as it landed has none."""

    reasons: list[Fault] | None = None  # why it failed
    salvaged: int | None = None
    raw: bytes | None = None  # the bytes judged, if a transform changed them or the letter lacks them


class _Work:
    """Judges the dead letters of a task, and writes the results."""

    def __init__(self, task: ReplayTask) -> None:
        self._task = task
        self._judge = Judge(task.batch.contract, task.limits, task.judge)
        self._attempts = writer_for(task.attempts, task.s3)
        self._bronze = writer_for(task.bronze, task.s3)
        self._dead_letters = writer_for(task.dead_letters, task.s3)
        self._done = Replayed()

    def take(self, rows: pa.RecordBatch) -> None:
        """Judge dead letters, at most as many as the judge takes at once."""
        letters = _Letters(rows, of_topic=self._task.of_topic)
        taken = self._taken(letters)
        outcomes: dict[int, _Outcome] = {}
        units: list[int] = []
        values: list[bytes] = []
        as_landed = not self._task.transform and not self._task.is_repeated
        for index in taken:
            raw = letters.raws[index]
            if as_landed and raw is not None and not letters.of_batch[index]:
                units.append(index)
                values.append(raw)
                continue
            outcome = outcomes[index] = _Outcome()
            value = self._bytes(letters, index, outcome)
            if value is None:
                continue
            if letters.of_batch[index]:
                self._batch(letters, index, value, outcome)
            else:
                units.append(index)
                values.append(value)
        for found in self._judge.judge_units(values):
            good_of, bad_of = ([units[number] for number in of.tolist()] for of in (found.good_of, found.bad_of))
            positions = pa.array([letters.positions[index] for index in good_of], pa.int64())
            good = replace(found.judged.good, positions=positions)
            self._take(letters, replace(found.judged, good=good), good_of, None)
            for index, reasons in zip(bad_of, found.judged.bad.reasons.to_pylist(), strict=True):
                outcomes.setdefault(index, _Outcome()).reasons = _faults(reasons)
        self._note(letters, taken, outcomes)

    def close(self) -> Replayed:
        """Finish the data files."""
        done = self._done
        done.attempts = self._attempts.close() if self._attempts else []
        done.bronze = self._bronze.close() if self._bronze else []
        done.dead_letters = self._dead_letters.close() if self._dead_letters else []
        return done

    def _taken(self, letters: _Letters) -> Sequence[int]:
        """Return the indexes of the letters to judge: of an interrupted replay, those that it has closed."""
        if not self._task.is_repeated:
            return range(len(letters))
        outcomes = [ReplayOutcome(str(each)) for each in letters.rows.column(tables.OUTCOME).to_pylist()]
        for index, outcome in enumerate(outcomes):
            if outcome is not ReplayOutcome.CLOSED:
                self._count(letters, index, outcome, [])
        return [index for index, outcome in enumerate(outcomes) if outcome is ReplayOutcome.CLOSED]

    def _bytes(self, letters: _Letters, index: int, outcome: _Outcome) -> bytes | None:
        """Return the bytes of a letter to judge; None without bytes, with the reason in `outcome`."""
        raw = letters.raws[index]
        if self._task.is_repeated:
            known: bytes | None = letters.rows.column(TRANSFORMED)[index].as_py()
            if known is not None:
                return known
        codes = letters.sets[index].split("+")
        transform = self._task.transform
        # A transform may supply missing bytes, such as those of a lost batch from a copy.
        if not transform and letters.of_batch[index] and not WITHOUT_BYTES.isdisjoint(codes):
            known_reasons: Any = letters.rows.column(tables.REASONS)
            outcome.reasons = _faults(known_reasons[index].as_py())
            return None
        if raw is None and Reason.TOMBSTONE not in codes:
            raw = self._read_again(letters, index, outcome)
            if raw is None:
                return None
            if len(raw) <= self._task.limits.record_bytes:
                # The source may have lost the unit when this replay is finished after a crash.
                outcome.raw = raw
        if transform is None or self._task.is_repeated:
            return raw or b""
        return self._transformed(raw or b"", letters, index, outcome)

    def _transformed(self, raw: bytes, letters: _Letters, index: int, outcome: _Outcome) -> bytes | None:
        made: object
        try:
            if self._apply:
                about = {
                    tables.SOURCE: letters.sources[index],
                    tables.POSITION: letters.positions[index],
                    "codes": letters.sets[index].split("+"),
                }
                made = self._apply(raw, about)
            else:
                made = letters.rows.column(TRANSFORMED)[index].as_py()
        except Exception as error:  # noqa: BLE001 - whatever the operator's function raises
            outcome.reasons = [Fault(Reason.TRANSFORM_FAILED, "$", f"{type(error).__name__}: {error}"[:_EXCERPT])]
            return None
        if not isinstance(made, bytes):
            detail = f"the transform returned {type(made).__name__}, not bytes"
            outcome.reasons = [Fault(Reason.TRANSFORM_FAILED, "$", detail)]
            return None
        if made != raw:
            outcome.raw = made
        return made

    @cached_property
    def _apply(self) -> Apply | None:
        transform = self._task.transform
        return transform.compiled() if transform and not transform.is_sql else None

    def _read_again(self, letters: _Letters, index: int, outcome: _Outcome) -> bytes | None:
        """Read the bytes of a unit that was too large for a dead letter from the source."""
        etag = letters.rows.column(ETAG)[index].as_py() or ""
        limits = self._task.limits
        envelope = self._task.reader.read_again(letters.sources[index], etag, limits)
        can_be_salvaged = envelope.failure and envelope.failure[0] == Reason.UNDECODABLE and self._salvages
        if envelope.failure and not (can_be_salvaged and letters.of_batch[index]):
            outcome.reasons = [Fault(Reason(envelope.failure[0]), "$", envelope.failure[1])]
            return None
        value = envelope.value or b""
        if letters.of_batch[index]:
            return value
        units = split(value, limits.record_bytes)
        position = letters.positions[index]
        found = None if isinstance(units, Refused) else next((u for n, u in enumerate(units) if n == position), None)
        if isinstance(found, bytes):
            return found
        size = f"{found.size:,} bytes" if found else "it is not in the batch any more"
        detail = f"{size}, and LAKE_MAX_RECORD_BYTES is {limits.record_bytes:,}"
        outcome.reasons = [Fault(Reason.RECORD_TOO_LARGE, "$", detail)]
        return None

    @property
    def _salvages(self) -> bool:
        return self._task.salvage or self._task.is_repeated

    def _batch(self, letters: _Letters, index: int, value: bytes, outcome: _Outcome) -> None:
        """Split a batch that could not be split before, and judge its units."""
        found = split(value, self._task.limits.record_bytes)
        if not isinstance(found, Refused):
            outcome.salvaged = 0
            for judged in self._judge.judge(value):
                outcome.salvaged += len(judged)
                self._take(letters, judged, [index] * len(judged.good), [index] * len(judged.bad))
            return
        # A compressed batch cannot be split: its reason stays the same.
        recovered = self._task.reader.recover(letters.sources[index], value, self._task.limits)
        if recovered:
            found = Refused(Reason.UNDECODABLE, recovered.detail)
        salvaged = _salvaged(value, recovered) if self._salvages else None
        if salvaged is None:
            outcome.reasons = [Fault(found.code, "$", found.detail)]
            return
        elements, rest = salvaged
        for start in range(0, len(elements), MAX_UNITS):
            for together in self._judge.judge_units(elements[start : start + MAX_UNITS]):
                good, bad = (pa.array(of + start, pa.int64()) for of in (together.good_of, together.bad_of))
                judged = Judged(
                    replace(together.judged.good, positions=good), replace(together.judged.bad, positions=bad)
                )
                self._take(letters, judged, [index] * len(judged.good), [index] * len(judged.bad))
        where = "there" if recovered else f"byte {len(value) - len(rest):,}"
        detail = f"{found.detail}; the {len(elements):,} records before {where} were salvaged"
        for judged in self._judge.refuse(found.code, detail, rest):
            last = pa.array([len(elements)] * len(judged.bad), pa.int64())
            self._take(letters, replace(judged, bad=replace(judged.bad, positions=last)), [], [index])
        outcome.salvaged = len(elements)

    def _take(self, letters: _Letters, judged: Judged, good_of: Sequence[int], bad_of: Sequence[int] | None) -> None:
        """Count units, and write their rows. Bad ones are new dead letters, unless `bad_of` is None."""
        good, bad, done = judged.good, judged.bad, self._done
        if len(good):
            counts = letters.origins.counts_of(good_of, len(good))
            done.outcomes.update({(part, None): units for part, units in counts.items()})
            if sets := drift_sets(good):
                parts = letters.origins.parts_of(good_of, len(good))
                done.drift.update((part, codes) for part, each in zip(parts, sets, strict=True) for codes in each)
            if self._bronze:
                batch = self._task.batch
                rows = bronze_rows(good, letters.origins.columns_of(good_of, len(good)), batch)
                done.sums.bronze.update(letters.origins.sums_of(good_of, row_hashes(rows, batch.contract)))
                self._bronze.write(rows)
        if bad_of:
            parts = [letters.parts[index] for index in bad_of]
            done.outcomes.update(zip(parts, reason_sets(bad.reasons), strict=True))
            if self._dead_letters:
                columns = letters.origins.columns_of(bad_of, len(bad))
                rows = dead_letter_rows(bad, columns, self._task.batch, attempt=2)
                done.sums.dead_letters.update(letters.origins.sums_of(bad_of, row_hashes(rows)))
                self._dead_letters.write(rows)

    def _note(self, letters: _Letters, taken: Sequence[int], outcomes: dict[int, _Outcome]) -> None:
        """Count the outcomes of letters, and write their attempts."""
        fates: dict[int, ReplayOutcome] = {}  # of failed letters
        for index, outcome in outcomes.items():
            if outcome.reasons is not None:
                fates[index] = self._fate(letters, index, outcome)
                self._count(letters, index, fates[index], outcome.reasons)
        self._count_closed(letters, [index for index in taken if index not in fates] if fates else taken)
        if self._attempts and taken:
            self._attempts.write(self._attempt_rows(letters, taken, outcomes, fates))

    def _fate(self, letters: _Letters, index: int, outcome: _Outcome) -> ReplayOutcome:
        if self._task.is_repeated:
            where = f"{letters.sources[index]}, position {letters.positions[index]}"
            raise JudgedOtherwiseError(
                f"An interrupted replay closed the dead letter at {where}, which now fails: "
                f"{'; '.join(fault.detail for fault in outcome.reasons or [])}.",
                "If what landed is missing, restore it. Then run the command again, with the version that began it.",
            )
        attempts = letters.tried[index]  # 1 before the first replay: the number of replays, with this one
        return ReplayOutcome.PARKED if attempts >= self._task.max_attempts else ReplayOutcome.FAILED

    def _count_closed(self, letters: _Letters, closed: Sequence[int]) -> None:
        done = self._done
        sets = [letters.sets[index] for index in closed]
        parts = [letters.parts[index] for index in closed]
        done.closed.update(zip(parts, sets, strict=True))
        for part, source in zip(parts, (letters.sources[index] for index in closed), strict=True):
            if source <= done.parts.get(part, source):
                done.parts[part] = source
        for each, units in Counter(sets).items():
            key = each, ReplayOutcome.CLOSED, ""
            done.fates[key] += units
            if len(done.examples.get(key, [])) < EXAMPLES:
                found = [index for index, other in zip(closed, sets, strict=True) if other == each]
                for index in found[:EXAMPLES]:
                    self._show(letters, index, key, [])

    def _count(self, letters: _Letters, index: int, fate: ReplayOutcome, reasons: list[Fault]) -> None:
        """Count a letter that was not closed."""
        done, part, source = self._done, letters.parts[index], letters.sources[index]
        done.parts[part] = min(source, done.parts.get(part, source))
        key = letters.sets[index], fate, "+".join(sorted({fault.code for fault in reasons}))
        done.fates[key] += 1
        self._show(letters, index, key, reasons)

    def _show(self, letters: _Letters, index: int, key: Fate, reasons: list[Fault]) -> None:
        examples = self._done.examples.setdefault(key, [])
        if len(examples) < EXAMPLES:
            raw = (letters.raws[index] or b"")[:_EXCERPT]
            examples.append(LetterExample(letters.sources[index], letters.positions[index], raw, reasons))

    def _attempt_rows(
        self,
        letters: _Letters,
        taken: Sequence[int],
        outcomes: dict[int, _Outcome],
        fates: dict[int, ReplayOutcome],
    ) -> pa.RecordBatch:
        """Return rows of ``dead_letters.<stream>_attempts``."""
        task, indexes = self._task, pa.array(taken, pa.int64())
        names = {tables.SOURCE: tables.SOURCE, tables.POSITION: tables.POSITION, tables.LETTER: tables.ATTEMPT}
        of_letters: dict[str, Any] = {name: letters.rows.column(column).take(indexes) for name, column in names.items()}
        failed = {index: number for number, index in enumerate(fates)}
        reasons: Any = reasons_column([outcomes[index].reasons or [] for index in failed])
        found = [outcomes.get(index, _PASSED) for index in taken] if outcomes else []
        # Bytes that a letter lacks are only needed if it was closed.
        judged = [each.raw if task.transform or not each.reasons else None for each in found]
        of_transform = (task.transform.name, task.transform.digest) if task.transform else (None, None)
        same: dict[str, Any] = {
            tables.REPLAY: pa.scalar(task.number, pa.int64()),
            tables.TRANSFORM: pa.scalar(of_transform[0], pa.string()),
            tables.TRANSFORM_DIGEST: pa.scalar(of_transform[1], pa.string()),
            tables.MICRO_BATCH_ID: pa.scalar(task.batch.id, pa.int64()),
            tables.INGESTED_AT: pa.scalar(task.batch.ingested_at, _TIMESTAMP),
            tables.CONTRACT_VERSION: pa.scalar(task.batch.contract.version, pa.string()),
        }
        return pa.RecordBatch.from_pydict(
            of_letters
            | {
                tables.LETTER_REASONS: pa.array([letters.sets[index] for index in taken], pa.string()),
                tables.ATTEMPT: pa.array([letters.tried[index] + 1 for index in taken], pa.int32()),
                tables.OUTCOME: pa.array([str(fates.get(index, ReplayOutcome.CLOSED)) for index in taken], pa.string()),
                tables.REASONS: reasons.take(pa.array([failed.get(index) for index in taken], pa.int64())),
                tables.SALVAGED: _column([each.salvaged for each in found], len(taken), pa.int64()),
                tables.RAW: _column(judged, len(taken), pa.binary()),
            }
            | {name: pa.repeat(value, len(taken)) for name, value in same.items()}
        )


_PASSED = _Outcome()


def _column(values: list[Any], rows: int, kind: Any) -> Any:
    """Return a column of values; nulls for an empty list."""
    return pa.array(values, kind) if values else pa.nulls(rows, kind)


def _salvaged(value: bytes, recovered: Recovered | None) -> tuple[list[bytes], bytes] | None:
    """Return the complete records of a batch, and the rest; None if no record is complete.

    A compressed batch can only be unpacked from its start, so its rest is the whole batch.
    """
    if recovered is None:
        return salvage(value)
    units = complete_units(recovered.value)
    return (units, value) if units else None


def _faults(reasons: Any) -> list[Fault]:
    return [Fault(Reason(each["code"]), each["path"], each["detail"]) for each in reasons]
