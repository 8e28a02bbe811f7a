"""The errors that a user can cause or repair.

::

    LakeproofError          exit code 1; printed as one line and a hint, never as a stack trace
    ├── UsageError          exit code 2; the command line, the settings or a contract is wrong
    ├── UnavailableError    exit code 3, retryable; something outside is missing, unreachable or refuses
    └── OutputError         exit code 1; standard output cannot be written
        └── OutputClosedError   whoever read it has gone: the program ends silently

Packages have subclasses of their own. An exit code of 3 is always retryable. The reverse does not hold: the exit codes
of `reader verify` have a meaning of their own.
"""

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_LONGEST = 60
_EXPECTED = {
    "string_type": "a string",
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
    """What went wrong, and what to do next."""

    exit_code: ClassVar[int] = 1
    """What a program ends with."""
    retryable: ClassVar[bool] = False
    """Whether trying again helps: the same command may succeed later. Where it is False, that is not known."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        # Errors come back from workers, and their classes have constructors of their own.
        return _restored, (type(self), self.__dict__)

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


def expected(error: "ErrorDetails") -> str:
    """Say in our words what pydantic expected and got."""
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


class OutputError(LakeproofError):
    """Standard output cannot be written."""


class OutputClosedError(OutputError):
    """Whoever read standard output has gone."""
