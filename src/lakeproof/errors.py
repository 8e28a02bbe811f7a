"""The errors that a user can cause or repair.

::

    LakeproofError          exit code 1; printed as one line and a hint, never as a stack trace
    ├── UsageError          exit code 2; the command line, the settings or a contract is wrong
    ├── UnavailableError    exit code 3, retryable; something outside is missing, unreachable or refuses
    ├── PausedError         exit code 5; too many units of a stream are bad, and none of them was committed
    └── OutputError         exit code 1; standard output cannot be written
        └── OutputClosedError   its reader has closed it: the program ends silently

Packages define subclasses. Exit code 3 is always retryable; the exit codes of `reader verify` have their own meaning.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_LONGEST = 60
_EXPECTED = {
    "string_type": "a string",
    "string_too_short": "a length of at least {min_length}",
    "too_short": "a length of at least {min_length}",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "enum": "one of {expected}",
    "literal_error": "one of {expected}",
    "list_type": "a list",
    "dict_type": "keys and values",
    "model_type": "keys and values",
    "model_attributes_type": "keys and values",
    "json_invalid": "valid JSON",
}
_KINDS = {
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "keys and values",
}


class LakeproofError(Exception):
    """An error with a message and a hint that says what to do next."""

    exit_code: ClassVar[int] = 1  # exit code of the program
    retryable: ClassVar[bool] = False  # the same command may succeed later; False means unknown

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        # Errors are pickled by workers, and subclasses have other constructors.
        return _restored, (type(self), self.__dict__)

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


def expected(error: "ErrorDetails") -> str:
    """Translate a pydantic error into "expected X, got Y"."""
    kind, given = error["type"], error["input"]
    if kind == "missing":
        return "required, but missing."
    context = {name: _plain(value) for name, value in error.get("ctx", {}).items()}
    wanted = _EXPECTED.get(kind, "another value").format(**context)
    if kind == "json_invalid":
        return f"expected {wanted}."
    is_of_that_kind = not kind.endswith("_type")
    return f"expected {wanted}, got {_shown(given) if is_of_that_kind else _kind(given)}."


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).replace("'", "").replace(" or ", ", ")


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        return _kind(value)
    text = "null" if value is None else repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _kind(value: Any) -> str:
    return "null" if value is None else _KINDS.get(type(value), "another type")


def _restored(kind: type[LakeproofError], attributes: dict[str, object]) -> LakeproofError:
    error = kind.__new__(kind, attributes.get("message"))
    error.__dict__.update(attributes)
    return error


class UsageError(LakeproofError):
    """The command line, the settings or a contract is wrong."""

    exit_code = 2


class UnavailableError(LakeproofError):
    """Something outside the program is missing, unreachable or refuses."""

    exit_code = 3
    retryable = True


class PausedError(LakeproofError):
    """A stream is paused by the breaker of its contract: an operator has to decide."""

    exit_code = 5

    def __init__(self, message: str, hint: str, examples: Sequence[str] = ()) -> None:
        super().__init__(message, hint)
        self.examples = tuple(examples)

    def __str__(self) -> str:
        return "\n  ".join([self.message, *self.examples, self.hint])


class OutputError(LakeproofError):
    """Standard output cannot be written."""


class OutputClosedError(OutputError):
    """The reader of standard output has closed it."""
