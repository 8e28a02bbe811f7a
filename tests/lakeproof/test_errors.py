"""Errors carry data: what went wrong, what to do next, and whether trying again helps."""

import pickle
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.state.lease import LeaseHeldError
from lakeproof.storage.errors import FileAbsentError
from reader.verify.streams import CannotCheckError, CannotCheckYetError

SRC = Path(__file__).parents[2] / "src"


def kinds(kind: type[LakeproofError] = LakeproofError) -> Iterator[type[LakeproofError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from kinds(each)


def test_an_exit_code_of_3_says_that_trying_again_helps() -> None:
    for path in SRC.rglob("*.py"):
        if "Error)" in path.read_text() and path.name != "__main__.py":
            import_module(".".join(path.relative_to(SRC).with_suffix("").parts))
    found = set(kinds())
    assert {FileAbsentError, LeaseHeldError, CannotCheckYetError} <= found
    assert [kind for kind in found if kind.exit_code == 3 and not kind.retryable] == []
    assert [kind for kind in found if issubclass(kind, UsageError) and kind.retryable] == []


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (LakeproofError("It broke."), False),
        (UsageError("It is wrong."), False),
        (UnavailableError("It is away.", "Start it."), True),
        (FileAbsentError("s3://landing/a.json"), True),
        (LeaseHeldError("It is held."), True),
        (CannotCheckError("It is unreadable."), False),
    ],
)
def test_an_error_of_another_process_still_says_so(error: LakeproofError, retryable: bool) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert (back.message, back.hint, back.retryable) == (error.message, error.hint, retryable)
