"""The errors that a user can cause or repair.

::

    LakeproofError          exit code 1; printed as one line and a hint, never as a stack trace
    ├── UsageError          exit code 2; the command line, the settings or a contract is wrong
    └── UnavailableError    exit code 3; something outside is missing or refuses: retrying may help
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

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class UsageError(LakeproofError):
    """The command line, the settings or a contract is wrong."""

    exit_code = 2


class UnavailableError(LakeproofError):
    """Something outside the program is missing, unreachable or refuses."""

    exit_code = 3
