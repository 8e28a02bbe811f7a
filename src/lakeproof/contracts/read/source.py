"""The text of a contract file, and the line of each of its parts."""

from dataclasses import dataclass
from typing import Any

import yaml

from lakeproof.errors import UsageError

Place = tuple[str | int, ...]
"""Where something is in the file: keys and indexes from its root, like ``("schema", 0, "properties", 2)``."""


@dataclass(frozen=True)
class Source:
    """A YAML document.

    Parameters
    ----------
    document
        What it holds. Times and numbers with a point are text, as written: nothing of them is lost.
    lines
        The line of each part.
    """

    document: Any
    lines: dict[Place, int]

    def line(self, place: Place) -> int:
        """Line of `place`, or of the nearest part around it."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem="aliases (*name) are not supported; write the value out", problem_mark=mark
            )
        return super().compose_node(parent, index)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as error:  # a number too long to be read
            raise yaml.MarkedYAMLError(problem=str(error), problem_mark=node.start_mark) from None


_AS_TEXT = {"tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp"}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in resolvers if tag not in _AS_TEXT]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_source(text: bytes, origin: str) -> Source:
    """Read YAML.

    Raises
    ------
    UsageError
        It is none, or it uses what a contract has no need of: aliases, a key twice.
    """
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        lines: dict[Place, int] = {}
        if node is None:
            return Source(None, lines)
        _find_lines(node, (), lines)
        return Source(loader.construct_document(node), lines)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise _not_yaml(origin, line, error.problem or error.context or "") from None
    except yaml.reader.ReaderError as error:
        decoded = text.decode(errors="replace") if error.encoding == "unicode" else text.decode("latin-1")
        raise _not_yaml(origin, decoded.count("\n", 0, error.position) + 1, error.reason) from None
    except UnicodeDecodeError as error:
        raise _not_yaml(origin, 1, str(error)) from None
    except RecursionError:
        raise _not_yaml(origin, 1, "nested too deeply") from None


def _find_lines(node: yaml.Node, place: Place, lines: dict[Place, int]) -> None:
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _find_lines(item, (*place, index), lines)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            within = (*place, str(key.value))
            if within in lines:
                raise yaml.MarkedYAMLError(problem=f"duplicate key {key.value!r}", problem_mark=key.start_mark)
            lines[within] = key.start_mark.line + 1
            _find_lines(value, within, lines)


def _not_yaml(origin: str, line: int, problem: str) -> UsageError:
    return UsageError(f"{origin}:{line}: not valid YAML: {problem}.", "Correct the file at this line.")
