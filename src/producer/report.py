"""Counts of generated records, for comparison with the tables in tests."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import msgspec
from rich.table import Table

from lakeproof.errors import UsageError
from lakeproof.output_files import is_special, write_whole
from lakeproof.reasons import Reason
from producer.batches import Batch, Record

SOUND = "sound"  # name of the combination without faults


@dataclass
class Tally:
    """Counts of the batches and records that have landed so far."""

    seed: int
    # `events` are records, including those in corrupt batches.
    batches: int = 0
    events: int = 0
    corrupt_batches: int = 0
    bytes: int = 0
    # Records by fault: ``sound``, or ``corrupt`` (in a truncated batch), ``invalid``, ``extra`` and ``duplicate``
    # joined by ``+``. They add up to `events`.
    combinations: Counter[str] = field(default_factory=Counter)
    bronze: int = 0  # expected rows of bronze
    # Expected dead letters by sorted reason codes joined by ``+``. A corrupt batch is one unit.
    dead_letters: Counter[str] = field(default_factory=Counter)
    # Readings out of range, without duplicates; None if the records have no range.
    anomalies: int | None = None

    def add(self, batch: Batch) -> None:
        """Count a landed batch."""
        self.batches += 1
        self.events += len(batch.records)
        self.corrupt_batches += batch.corrupt
        self.bytes += len(batch.data)
        if batch.corrupt:
            self.dead_letters[Reason.CORRUPT_BATCH] += 1
        if self.anomalies is not None:
            self.anomalies += sum(record.anomaly and not record.duplicate for record in batch.records)
        for record in batch.records:
            self.combinations[_combination(record, in_corrupt_batch=batch.corrupt)] += 1
            if batch.corrupt:
                continue
            if record.reasons:
                self.dead_letters["+".join(record.reasons)] += 1
            else:
                self.bronze += 1

    def records_with(self, fault: str) -> int:
        """Count the records with a fault, alone or with others."""
        return sum(count for name, count in self.combinations.items() if fault in name.split("+"))

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a dictionary for JSON."""
        marked = {} if self.anomalies is None else {"anomalies": self.anomalies}
        return {
            "seed": self.seed,
            "batches": self.batches,
            "events": self.events,
            "bytes": self.bytes,
            "corrupt_batches": self.corrupt_batches,
            "invalid": self.records_with("invalid"),
            "extra": self.records_with("extra"),
            "duplicates": self.records_with("duplicate"),
            **marked,
            "combinations": dict(sorted(self.combinations.items())),
            "expected": {"bronze": self.bronze, "dead_letters": dict(sorted(self.dead_letters.items()))},
        }

    def table(self) -> Table:
        """Return the report as a table."""
        table = Table(title=f"Generated with seed {self.seed}", title_justify="left")
        table.add_column("what")
        table.add_column("count", justify="right")
        marked = () if self.anomalies is None else (("  anomalies", self.anomalies),)
        for what, count in (
            ("batches", self.batches),
            ("  corrupt", self.corrupt_batches),
            ("events", self.events),
            ("  invalid", self.records_with("invalid")),
            ("  with an extra field", self.records_with("extra")),
            ("  duplicates", self.records_with("duplicate")),
            *marked,
        ):
            table.add_row(what, f"{count:,}")
        table.add_section()
        for name, count in sorted(self.combinations.items()):
            table.add_row(f"events: {name.replace('+', ' + ')}", f"{count:,}")
        table.add_section()
        table.add_row("expected in bronze", f"{self.bronze:,}")
        for name, count in sorted(self.dead_letters.items()):
            table.add_row(f"expected dead letters: {name.replace('+', ' + ')}", f"{count:,}")
        return table


def check_writable(path: Path) -> None:
    """Check that a report can be written to `path` before the run begins."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not is_special(path):
            NamedTemporaryFile(dir=path.resolve().parent).close()
    except OSError as error:
        raise _not_writable(path, error) from error


def write_report(tally: Tally, path: Path, landed: Mapping[str, Any]) -> None:
    """Write the report as JSON: a file atomically, a device or a pipe directly."""
    text = msgspec.json.format(msgspec.json.encode(tally.as_dict() | dict(landed)), indent=2) + b"\n"
    try:
        write_whole(path, text)
    except OSError as error:
        raise _not_writable(path, error) from error


def _combination(record: Record, *, in_corrupt_batch: bool) -> str:
    faults = (
        ("corrupt", in_corrupt_batch),
        ("invalid", any(reason is not Reason.UNKNOWN_FIELD for reason in record.reasons)),
        ("extra", Reason.UNKNOWN_FIELD in record.reasons),
        ("duplicate", record.duplicate),
    )
    return "+".join(name for name, has in faults if has) or SOUND


def _not_writable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"Cannot write the report to {path}: {error.strerror}.", "Use another --report.")
