"""Faults put into the consumer on purpose. Each must turn a scenario red, or the scenario proves nothing."""

import dataclasses
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from types import ModuleType
from typing import Any


class Mutant(StrEnum):
    """What is taken out or broken."""

    NO_MARKER_CHECK = "no-marker-check"
    NO_LEDGER_CHECK = "no-ledger-check"
    NO_LEASE = "no-lease"
    TRAILING_GARBAGE = "trailing-garbage"


def wrap(module: ModuleType, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put `around(what is there)` in a module's place of that name, which must exist."""
    setattr(module, name, around(getattr(module, name)))


def install(mutant: Mutant) -> None:
    """Break this process's consumer."""
    {
        Mutant.NO_MARKER_CHECK: _append_without_looking,
        Mutant.NO_LEDGER_CHECK: _forget_the_ledger,
        Mutant.NO_LEASE: _need_no_lease,
        Mutant.TRAILING_GARBAGE: _drop_trailing_garbage,
    }[mutant]()


def _append_without_looking() -> None:
    """No look for a marker before an append, and an id of its own for each, so that no fence refuses it."""
    from consumer.bronze import append
    from consumer.queries import micro_batches

    def unfenced(real: Callable[..., bool]) -> Callable[..., bool]:
        def append_once(spark: Any, table: str, marker: append.Marker, files: Any) -> bool:
            another = dataclasses.replace(marker, contract=f"{marker.contract}-{uuid.uuid4().hex}")
            return real(spark, table, another, files)

        return append_once

    wrap(append, "_has_marker", lambda _: lambda *_arguments: False)
    wrap(micro_batches, "append_once", unfenced)


def _forget_the_ledger() -> None:
    from consumer.queries import micro_batches

    wrap(micro_batches, "accounted_sources", lambda _: lambda *_arguments: set())
    wrap(micro_batches, "has_other_checkpoints", lambda _: lambda *_arguments: False)


def _need_no_lease() -> None:
    from consumer.queries import bronze

    class Anybodys:
        def check(self) -> None: ...

    @contextmanager
    def lease(*_arguments: Any) -> Iterator[Anybodys]:
        yield Anybodys()

    wrap(bronze, "lease", lambda _: lease)


def _drop_trailing_garbage() -> None:
    """Take the array of a batch, and forget what follows it."""
    from consumer.bronze import judge

    def lenient(real: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        return lambda value: real(value[: value.rfind(b"]") + 1] if value.startswith(b"[") and b"]" in value else value)

    wrap(judge, "split", lenient)
