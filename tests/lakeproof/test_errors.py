"""Errors have data: the cause, the next step, and whether a retry helps."""

import pickle
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from lakeproof.errors import LakeproofError, UnavailableError, UsageError, expected
from lakeproof.state.lease import LeaseHeldError
from lakeproof.storage.errors import FileAbsentError
from reader.verify.driver import CannotCheckError, CannotCheckYetError

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


class _Inner(BaseModel):
    text: str


class _Model(BaseModel):
    whole: int = Field(1, ge=1, le=70_000)
    share: float = Field(0.5, gt=0, lt=1, allow_inf_nan=False)
    flag: bool = False
    kind: Literal["a", "b"] = "a"
    text: str = ""
    items: list[str] = []
    pairs: dict[str, str] = {}
    inner: _Inner = _Inner(text="")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"whole": "x"}, "expected a whole number, got 'x'."),
        ({"whole": 1.5}, "expected a whole number, got 1.5."),
        ({"whole": "9" * 5_000}, f"expected a smaller number, got '{'9' * 59}…."),
        ({"whole": None}, "expected a number, got null."),
        ({"whole": 0}, "expected 1 or more, got 0."),
        ({"whole": "70001"}, "expected 70000 or less, got '70001'."),
        ({"share": "half"}, "expected a number, got 'half'."),
        ({"share": []}, "expected a number, got a list."),
        ({"share": 0}, "expected more than 0, got 0."),
        ({"share": 1.5}, "expected less than 1, got 1.5."),
        ({"share": "nan"}, "expected a finite number, got 'nan'."),
        ({"flag": "perhaps"}, "expected true or false, got 'perhaps'."),
        ({"flag": {}}, "expected true or false, got keys and values."),
        ({"kind": "c"}, "expected one of a, b, got 'c'."),
        ({"text": True}, "expected a string, got a boolean."),
        ({"items": "a"}, "expected a list, got a string."),
        ({"pairs": "a"}, "expected keys and values, got a string."),
        ({"inner": 5}, "expected keys and values, got a number."),
        ({"inner": {}}, "required, but missing."),
    ],
)
def test_what_pydantic_refuses_is_said_in_our_words(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _Model.model_validate(values)
    assert [expected(error) for error in caught.value.errors()] == [said]
