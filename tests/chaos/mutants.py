"""Deliberate faults in the consumer. Each must turn a scenario red, or the scenario proves nothing."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from types import ModuleType
from typing import Any

from lakeproof.errors import UnavailableError


class Mutant(StrEnum):
    """What is removed or broken."""

    NO_MARKER_CHECK = "no-marker-check"
    NO_LEDGER_CHECK = "no-ledger-check"
    NO_LEASE = "no-lease"
    TRAILING_GARBAGE = "trailing-garbage"
    MARKERS_BY_NUMBER = "markers-by-number"
    NO_SILVER_LOOK_UP = "no-silver-look-up"
    NO_MARKER_CHECK_IN_SILVER = "no-marker-check-in-silver"
    EMPTY_KEY_INDEX = "empty-key-index"
    NO_REMOVAL_IN_GOLD = "no-removal-in-gold"
    NEW_ROWS_ONLY_IN_GOLD = "new-rows-only-in-gold"
    NO_PATIENCE_WITH_BROKERS = "no-patience-with-brokers"
    COMMITS_TRIED_AGAIN = "commits-tried-again"
    ATTEMPTS_LAST = "attempts-last"
    NO_REPLAYS_IN_LEDGER = "no-replays-in-ledger"
    CLOSED_TRIED_AGAIN = "closed-tried-again"
    NO_MARKER_CHECK_IN_REPLAYS = "no-marker-check-in-replays"
    INTERRUPTED_REPLAYS_FORGOTTEN = "interrupted-replays-forgotten"
    REST_NOT_SALVAGED = "rest-not-salvaged"
    NEVER_PARKED = "never-parked"
    FAILED_CLOSED = "failed-closed"
    PAUSES_FORGOTTEN = "pauses-forgotten"

    def in_workers(self, command: str) -> bool:
        """Return whether the mutant also breaks Spark's workers when they work for a command of the consumer."""
        return self in _IN_WORKERS.get(command, ())

    @property
    def layer(self) -> str:
        """The last layer of the mutant's fault; later layers would stop, and hide its effect."""
        return "gold" if self in (*_OF_LAYERS, *_OF_REPLAYS) else "bronze"


_IN_WORKERS = {
    "run": (Mutant.TRAILING_GARBAGE, Mutant.NO_PATIENCE_WITH_BROKERS),
    "replay": (Mutant.REST_NOT_SALVAGED, Mutant.FAILED_CLOSED),
}
_OF_REPLAYS = (
    Mutant.ATTEMPTS_LAST,
    Mutant.NO_REPLAYS_IN_LEDGER,
    Mutant.CLOSED_TRIED_AGAIN,
    Mutant.NO_MARKER_CHECK_IN_REPLAYS,
    Mutant.INTERRUPTED_REPLAYS_FORGOTTEN,
    Mutant.REST_NOT_SALVAGED,
    Mutant.NEVER_PARKED,
    Mutant.FAILED_CLOSED,
    Mutant.PAUSES_FORGOTTEN,
)
"""Mutants of replays, which fill all layers, and of lakes with replays."""
_OF_LAYERS = (
    Mutant.NO_SILVER_LOOK_UP,
    Mutant.NO_MARKER_CHECK_IN_SILVER,
    Mutant.EMPTY_KEY_INDEX,
    Mutant.NO_REMOVAL_IN_GOLD,
    Mutant.NEW_ROWS_ONLY_IN_GOLD,
)


def wrap(module: ModuleType | type, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace the attribute `name` of a module or a class, which must exist, by `around` of its value."""
    setattr(module, name, around(getattr(module, name)))


def install(mutant: Mutant) -> None:
    """Break the consumer of this process."""
    {
        Mutant.NO_MARKER_CHECK: _append_without_looking,
        Mutant.NO_LEDGER_CHECK: _forget_the_ledger,
        Mutant.NO_LEASE: _need_no_lease,
        Mutant.TRAILING_GARBAGE: _drop_trailing_garbage,
        Mutant.MARKERS_BY_NUMBER: _compare_numbers,
        Mutant.NO_SILVER_LOOK_UP: _compare_with_nothing,
        Mutant.NO_MARKER_CHECK_IN_SILVER: _append_to_silver_without_looking,
        Mutant.EMPTY_KEY_INDEX: _fill_no_key_index,
        Mutant.NO_REMOVAL_IN_GOLD: _leave_old_rows,
        Mutant.NEW_ROWS_ONLY_IN_GOLD: _compute_from_new_rows,
        Mutant.NO_PATIENCE_WITH_BROKERS: _stop_reading,
        Mutant.COMMITS_TRIED_AGAIN: _let_iceberg_try_again,
        Mutant.ATTEMPTS_LAST: _commit_attempts_after_bronze,
        Mutant.NO_REPLAYS_IN_LEDGER: _keep_replays_from_the_ledger,
        Mutant.CLOSED_TRIED_AGAIN: _take_all_letters_for_open,
        Mutant.NO_MARKER_CHECK_IN_REPLAYS: _replay_without_looking,
        Mutant.INTERRUPTED_REPLAYS_FORGOTTEN: _forget_interrupted_replays,
        Mutant.REST_NOT_SALVAGED: _drop_the_rest_of_batches,
        Mutant.NEVER_PARKED: _ignore_the_most_attempts,
        Mutant.FAILED_CLOSED: _close_what_failed,
        Mutant.PAUSES_FORGOTTEN: _forget_pauses,
    }[mutant]()


def _append_without_looking() -> None:
    """Do not check markers, neither when a micro-batch or a run begins, nor before an append."""
    from consumer.iceberg import append
    from consumer.iceberg.newest import Standing
    from consumer.layers.bronze import land
    from consumer.queries import bronze as landing

    wrap(append, "has_done", lambda _: lambda *_arguments: False)
    wrap(land, "unfinished", lambda _: lambda *_arguments: None)
    wrap(
        landing,
        "standing",
        lambda real: lambda *arguments: Standing(real(*arguments).accounted, None),
    )


def _forget_the_ledger() -> None:
    """Recreate a lost landing log without the files that the ledger has."""
    from consumer.sources.files import resume

    wrap(resume, "_accounted_files", lambda _: lambda *_arguments: ())


def _need_no_lease() -> None:
    from consumer.queries import application as app

    class Anybodys:
        def check(self) -> None: ...

    @contextmanager
    def lease(*_arguments: Any) -> Iterator[Anybodys]:
        yield Anybodys()

    wrap(app, "lease", lambda _: lease)


def _drop_trailing_garbage() -> None:
    """Take the array of a batch, and ignore what follows it."""
    from lakeproof.judge import batch

    def lenient(real: Callable[..., Any]) -> Callable[..., Any]:
        def split(value: bytes, *limits: int) -> Any:
            return real(value[: value.rfind(b"]") + 1] if value.startswith(b"[") and b"]" in value else value, *limits)

        return split

    wrap(batch, "split", lenient)
    wrap(batch.Judge, "_native", lambda _: None)  # the native judge splits by itself


def _compare_numbers() -> None:
    """Use the protocol until November 2026: a micro-batch was done if its checkpoint had reached its number."""
    from consumer.iceberg import append
    from consumer.sources.files import source
    from lakeproof.checkpoint import read_checkpoint

    def has_done(newest: Any, marker: Any, _table: str) -> bool:
        return bool(
            newest
            and newest.marker.checkpoint_id == marker.checkpoint_id
            and newest.marker.micro_batch_id >= marker.micro_batch_id
        )

    def around_place(real: Callable[..., Any]) -> Callable[..., Any]:
        def place_to_go_on(settings: Any, query: str, *others: Any) -> Any:
            checkpoint = read_checkpoint(settings, query)
            return (checkpoint.passed if checkpoint else None) or real(settings, query, *others)

        return place_to_go_on

    wrap(append, "has_done", lambda _: has_done)
    wrap(source, "place_to_go_on", around_place)


def _compare_with_nothing() -> None:
    """Compare rows only with rows of their own micro-batch, not with silver."""
    from consumer.layers.silver import decide

    def around(real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: replace(real(*arguments), files=[])

    wrap(decide, "kept_scan", around)


def _leave_old_rows() -> None:
    """Add the new rows of a window, and keep the old ones."""
    from consumer.iceberg import upsert

    wrap(upsert, "_remove", lambda _: lambda *_arguments: None)


def _append_to_silver_without_looking() -> None:
    """Do not check markers in silver's tables, so a begun micro-batch is appended again."""
    from consumer.iceberg import append

    def around(real: Callable[..., bool]) -> Callable[..., bool]:
        return lambda newest, marker, table: "silver" not in table and real(newest, marker, table)

    wrap(append, "has_done", around)


def _fill_no_key_index() -> None:
    """Leave a lost key index empty."""
    from consumer.layers.silver.state import KeptKeys

    wrap(KeptKeys, "_fill", lambda _: lambda _state, _index, _silver, wanted, _start: wanted.end)


def _compute_from_new_rows() -> None:
    """Compute a window from its new rows alone, not from all of its rows."""
    from consumer.layers.gold.aggregate import GoldLayer

    def around(real: Callable[..., Any]) -> Callable[..., Any]:
        def silver(layer: Any, work: Any, **others: Any) -> Any:
            return real(layer, work, **others | {"since": work.start})

        return silver

    wrap(GoldLayer, "_silver", around)


def _stop_reading() -> None:
    """End a range of offsets when the brokers have sent nothing for a moment."""
    from consumer.sources.kafka import read

    def around_range(real: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def impatient(*arguments: Any) -> Iterator[Any]:
            *others, kafka, limits, problems = arguments
            try:
                yield from real(*others, kafka.model_copy(update={"timeout_seconds": 0.5}), limits, problems)
            except UnavailableError:
                return

        return impatient

    wrap(read, "_range", around_range)


def _let_iceberg_try_again() -> None:
    """Use the protocol until November 2026: Iceberg repeats a refused commit, and a validator checks the marker."""
    from pyspark.java_gateway import ensure_callback_server_started
    from pyspark.sql import SparkSession

    from consumer.iceberg import append
    from consumer.iceberg.marker import property_of

    class NewestMarkerIs:
        def __init__(self, transaction: Any, key: str) -> None:
            self._transaction, self._key = transaction, key
            self._expected = transaction.table().properties().get(key)

        def validate(self, _ancestors: object) -> bool:
            return bool(self._transaction.table().properties().get(self._key) == self._expected)

        def errorMessage(self) -> str:  # noqa: N802 - Iceberg's name
            return "another writer appended a micro-batch of this query"

        def hashCode(self) -> int:  # noqa: N802 - Java asks for it
            return 0

        class Java:
            implements = ("org.apache.iceberg.SnapshotAncestryValidator",)

    def around_prepare(real: Callable[..., Any]) -> Callable[..., Any]:
        def prepare(transaction: Any, query: str, marker: Any, change: Any) -> Any:
            session = SparkSession.getActiveSession()
            assert session
            ensure_callback_server_started(session.sparkContext._gateway)  # type: ignore[no-untyped-call]

            def validated(transaction: Any) -> Any:
                return change(transaction).validateWith(NewestMarkerIs(transaction, property_of(query)))

            return real(transaction, query, marker, validated)

        return prepare

    wrap(append, "_prepare", around_prepare)
    wrap(append, "_commit", lambda _: lambda transaction: transaction.commitTransaction())


def _commit_attempts_after_bronze() -> None:
    """Append the rows of a replay to bronze before the attempts record their dead letters."""
    from consumer.layers.bronze.replay import ReplayLayer

    def around(real: Callable[..., Any]) -> Callable[..., Any]:
        def compute(*arguments: Any) -> Generator[Any, None, Any]:
            commits = real(*arguments)
            try:
                attempts, bronze = next(commits), next(commits)
            except StopIteration as end:
                return end.value
            yield bronze
            yield attempts
            return (yield from commits)

        return compute

    wrap(ReplayLayer, "compute", around)


def _keep_replays_from_the_ledger() -> None:
    """Commit the marker of a replay to the ledger, but none of its rows."""
    from consumer.layers.bronze import replay

    wrap(replay, "replay_rows", lambda real: lambda *arguments: real(*arguments).slice(0, 0))


def _take_all_letters_for_open() -> None:
    """Replay every dead letter, including closed and parked ones."""
    from pyspark.sql import functions

    from consumer.layers.bronze import letters

    def around(real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **others: real(*arguments, **others).withColumn("state", functions.lit("open"))

    wrap(letters, "_with_state", around)


def _replay_without_looking() -> None:
    """Do not check the marker of a replay, so a begun replay is appended again."""
    from consumer.iceberg import append

    def around(real: Callable[..., bool]) -> Callable[..., bool]:
        return lambda newest, marker, table: not marker.is_replay and real(newest, marker, table)

    wrap(append, "has_done", around)


def _forget_interrupted_replays() -> None:
    """Do not check whether the attempts have a replay that the ledger lacks."""
    from consumer.iceberg import newest
    from consumer.layers.bronze import replay

    for module in (newest, replay):
        wrap(module, "check_attempts", lambda _: lambda *_arguments: False)


def _drop_the_rest_of_batches() -> None:
    """Drop the bytes behind the complete records of a batch that was cut short."""
    from consumer.layers.bronze.replay_tasks import _Work

    def around(real: Callable[..., None]) -> Callable[..., None]:
        def take(work: Any, letters: Any, judged: Any, good_of: Any, bad_of: Any) -> None:
            real(work, letters, judged, good_of, bad_of if good_of else [])

        return take

    wrap(_Work, "_take", around)


def _ignore_the_most_attempts() -> None:
    """Let a dead letter fail any number of times."""
    from dataclasses import replace

    from consumer.layers.bronze.replay import ReplayLayer

    wrap(
        ReplayLayer,
        "_task",
        lambda real: lambda *arguments: replace(real(*arguments), max_attempts=1_000_000),
    )


def _close_what_failed() -> None:
    """Close a dead letter that fails again, so its record is in no table."""
    from consumer.layers.bronze.replay_tasks import _Work
    from lakeproof.tables.names import ReplayOutcome

    wrap(_Work, "_fate", lambda _: lambda *_arguments: ReplayOutcome.CLOSED)


def _forget_pauses() -> None:
    """Ignore pauses: cut landed data into micro-batches as the trigger does."""
    from consumer.queries.bronze import BronzeQuery

    wrap(BronzeQuery, "_take_paused", lambda _: lambda *_arguments: None)
