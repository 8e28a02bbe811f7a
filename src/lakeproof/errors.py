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

from typing import ClassVar


class LakeproofError(Exception):
    """What went wrong, and what to do next.

    Parameters
    ----------
    message
        One line that says what is wrong.
    hint
        One line that says what to do next.
    """

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
