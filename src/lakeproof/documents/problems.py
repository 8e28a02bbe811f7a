"""Collects all errors of a YAML document, with their positions."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pydantic import BaseModel, ValidationError

from lakeproof.documents.source import RefusedError, YamlPath, read_source

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

ModelT = TypeVar("ModelT", bound=BaseModel)
FoundT = TypeVar("FoundT")
P = ParamSpec("P")
_LIKENESS = 0.7


@dataclass
class ContractError(Exception):
    """An error in a contract or data product."""

    place: YamlPath
    message: str
    hint: str
    about_key: bool = False  # the key at `place` is wrong, not its value
    lacks: str = ""  # name of the key that is missing at `place`, if any


@dataclass
class Problems:
    """Collects errors."""

    found: list[ContractError] = field(default_factory=list)
    # Places of the document that were left out because of an error.
    removed: list[YamlPath] = field(default_factory=list)
    # Fields that could not be read: references to them are not reported.
    broken: set[str] = field(default_factory=set)

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Collect a ContractError that is raised in the block."""
        try:
            yield
        except ContractError as error:
            self.add(error)

    def read(self, function: Callable[P, FoundT], *arguments: P.args, **named: P.kwargs) -> FoundT | None:
        """Call a function and return its result; None if it raises a ContractError, which is collected."""
        with self.caught():
            return function(*arguments, **named)
        return None

    def report(self, place: YamlPath, message: str, hint: str, *, about_key: bool = False, lacks: str = "") -> None:
        """Add an error that is described by the fields of :class:`ContractError`."""
        self.add(ContractError(place, message, hint, about_key, lacks))

    def add(self, error: ContractError) -> None:
        """Add an error, unless it follows from an earlier one."""
        if any(error.place[: len(place)] == place for place in self.removed):
            return
        names = [str(place[-1]) for place in self.removed if place[:-1] == error.place]
        if not (error.lacks and near(error.lacks, names)):
            self.found.append(error)

    def concern(self, text: object) -> bool:
        """Whether a text refers to a field that could not be read."""
        return any(re.search(rf"\b{re.escape(name)}\b", str(text)) for name in self.broken)


def read_document(
    text: bytes, origin: str, read: Callable[[Any, Problems], FoundT | None], path: Callable[[Any, YamlPath], str]
) -> FoundT:
    """Read a YAML document, or raise the error that reports all problems in the order of the file.

    `path` describes a place of the document for the messages.
    """
    source = read_source(text, origin)
    problems = Problems()
    found = read(source.document, problems)
    if found is not None and not problems.found:
        return found
    located = []
    for error in problems.found:
        span = source.span(error.place, error.about_key)
        what = path(source.document, error.place)
        message = f"{origin}:{span.line}:{span.column}: {f'{what}: ' if what else ''}{error.message}"
        located.append((span, (message, source.excerpt(span), error.hint)))
    raise RefusedError([problem for _, problem in sorted(located, key=lambda each: each[0])])


def validated(
    model: type[ModelT], document: Any, problems: Problems, translate: "Callable[[ErrorDetails], ContractError]"
) -> ModelT | None:
    """Validate a document; invalid parts are reported and removed, so that the rest is checked, too."""
    document = deepcopy(document)
    while True:
        try:
            return model.model_validate(document, extra="forbid")
        except ValidationError as error:
            # Unknown keys first: one of them may be the reason why another key is missing.
            found = sorted(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
        removed = 0
        for each in found:
            problems.add(translate(each))
            place = located_at(each)
            if each["type"] != "missing" and _remove(document, place):
                problems.removed.append(place)
                removed += 1
        if removed < len(found):
            return None


def located_at(error: "ErrorDetails") -> YamlPath:
    """Return the place of a pydantic error."""
    return tuple(step for step in error["loc"] if step != "[key]")


def near(name: str, known: list[str]) -> str:
    """The known name closest to `name`; empty if none is close."""
    return next(iter(get_close_matches(name, known, n=1, cutoff=_LIKENESS)), "")


def _remove(document: Any, place: YamlPath) -> bool:
    """Remove a part of a document without moving the other items of a list."""
    try:
        *within, last = place
        for step in within:
            document = document[step]
        if not isinstance(document, list):
            del document[last]
        elif document[index := int(last)] is _LEFT_OUT:
            del document[index:]
        else:
            document[index] = _LEFT_OUT
    except (KeyError, IndexError, TypeError, ValueError):
        return False
    return True


_LEFT_OUT: dict[str, Any] = {}
