"""Choose the judge of a consumer: the native one, which is a separate package, or the one in Python."""

from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Literal

from lakeproof.errors import UnavailableError

JudgeName = Literal["auto", "native", "python"]


@dataclass(frozen=True)
class JudgeChoice:
    """The judge that runs."""

    name: Literal["native", "python"]
    version: str = ""  # of the native judge
    why: str = ""  # reason for the judge in Python

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


def judge_choice(wanted: JudgeName = "auto") -> JudgeChoice:
    """Choose a judge by the value of LAKE_JUDGE; an error if the native one is wanted, but cannot be used."""
    if wanted == "python":
        return JudgeChoice("python", why="LAKE_JUDGE is python")
    found = _native_judge()
    if wanted == "native" and found.name != "native":
        raise UnavailableError(
            f"LAKE_JUDGE is native, but {found.why}.",
            "Install Rust and run `make setup-native`, or install its wheel (docs/install.md), or unset LAKE_JUDGE.",
        )
    return found


def _native_judge() -> JudgeChoice:
    try:
        found: str | None = getattr(import_module("native_judge"), "__version__", None)
    except ModuleNotFoundError:
        found = None
    except Exception as error:  # noqa: BLE001 - for example, built for a newer C library, or another module of this name
        return JudgeChoice("python", why=f"the native judge cannot be loaded: {error}")
    if found is None:
        return JudgeChoice("python", why="the native judge is not installed")
    # The interface between the two is private, and may change with every version.
    if found != (own := version("lakeproof")):
        return JudgeChoice("python", why=f"the native judge is of version {found}, and lakeproof of {own}")
    return JudgeChoice("native", found)
