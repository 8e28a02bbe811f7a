"""YAML documents with the positions of their parts."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import yaml
from rich.cells import cell_len

from lakeproof.errors import UsageError

YamlPath = tuple[str | int, ...]  # path of keys and indexes in a document, like ``("schema", 0, "properties", 2)``

_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_MAX_SHOWN = 100  # characters per line of an excerpt


class Span(NamedTuple):
    """A part of a line: 1-based line and column, and number of characters."""

    line: int
    column: int
    length: int


class RefusedError(UsageError):
    """A document is invalid; the error shows all problems with line and caret."""

    def __init__(self, problems: list[tuple[str, str, str]]) -> None:
        first, _, hint = problems[0]
        more = f" (1 of {len(problems)} errors)" if len(problems) > 1 else ""
        super().__init__(first + more, hint)
        self.problems = problems

    def __str__(self) -> str:
        return "\nError: ".join(
            "\n".join([message, *excerpt.splitlines(), f"  {hint}"]) for message, excerpt, hint in self.problems
        )


@dataclass(frozen=True)
class Source:
    """A YAML document with positions."""

    # Times and decimal numbers stay text, as written, so that no digit is lost.
    document: Any
    keys: dict[YamlPath, Span]  # of keys, and of items of sequences
    # Of values on the line of their key: scalars, and collections in flow style.
    values: dict[YamlPath, Span]
    text: list[str]

    def span(self, place: YamlPath, about_key: bool = False) -> Span:
        """The span of a value, or of its key, or of the nearest enclosing part."""
        if not about_key and place in self.values:
            return self.values[place]
        while place and place not in self.keys:
            place = place[:-1]
        return self.keys.get(place, Span(1, 1, 1))

    def written(self, place: YamlPath) -> str:
        """The text of a value on the line of its key; empty for others."""
        span = self.values.get(place)
        return self.text[span.line - 1][span.column - 1 :][: span.length] if span else ""

    def excerpt(self, span: Span) -> str:
        """The line of a span with carets below it."""
        return _excerpt(self.text, span)


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem="aliases (*name) are not supported; write the value out", problem_mark=mark
            )
        return super().compose_node(parent, index)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        if node.flow_style:
            node.value = _with_whole_decimals(node.value)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            found = super().construct_object(node, deep)
            return _with_whole_characters(found) if isinstance(found, str) else found
        except UnicodeDecodeError:
            problem = "half of a character: \\ud800 to \\udbff and \\udc00 to \\udfff come in pairs"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None
        except ValueError as error:  # a number too long to be read
            raise yaml.MarkedYAMLError(problem=str(error), problem_mark=node.start_mark) from None
        except (AttributeError, KeyError, IndexError):  # PyYAML raises them for an explicit tag, like `!!bool x`
            problem = f"{node.value!r} is not a value of the type {node.tag.rpartition(':')[2]}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None


def _with_whole_characters(text: str) -> str:
    r"""Join the halves of characters that are escaped as in JSON, like ``\ud83d\ude00``: PyYAML leaves them apart."""
    if not _HALF.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16")


_HALF = re.compile("[\ud800-\udfff]")
_AS_TEXT = {"tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp"}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in resolvers if tag not in _AS_TEXT]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}

_Pairs = list[tuple[yaml.Node, yaml.Node]]
_DECIMAL_START = re.compile(r"decimal\(\s*\d+", re.ASCII)
_DECIMAL_END = re.compile(r"\d+\s*\)", re.ASCII)


def _with_whole_decimals(pairs: _Pairs) -> _Pairs:
    """Rejoin ``{physicalType: decimal(12,2)}``, which YAML splits at the comma."""
    whole: _Pairs = []
    for key, value in pairs:
        before = whole[-1][1] if whole else None
        if (
            isinstance(before, yaml.ScalarNode)
            and isinstance(key, yaml.ScalarNode)
            and isinstance(value, yaml.ScalarNode)
            and (before.style, key.style, value.value) == (None, None, "")
            and _DECIMAL_START.fullmatch(before.value)
            and _DECIMAL_END.fullmatch(key.value)
        ):
            before.value += f",{key.value}"
            before.end_mark = key.end_mark
        else:
            whole.append((key, value))
    return whole


@lru_cache(maxsize=64)  # without it, `reader verify` parsed four files 22 times: a fifth of its processor time
def read_source(text: bytes, origin: str) -> Source:
    """Parse YAML; aliases and duplicate keys are errors. Callers share the document: they must not change it."""
    lines: list[str] = []
    try:
        loader = _Loader(text)
        encoding = "utf-8-sig" if loader.encoding == "utf-8" else "utf-16"
        lines = _LINE_END.split(text.decode(encoding, "replace"))
        node = loader.get_single_node()
        source = Source(None, {}, {}, lines)
        if node is None:
            return source
        _find_places(node, (), source)
        return Source(loader.construct_document(node), source.keys, source.values, lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        span = Span(mark.line + 1, mark.column + 1, 1) if mark else Span(1, 1, 1)
        raise _not_yaml(origin, span, error.problem or error.context or "", lines) from None
    except yaml.reader.ReaderError as error:
        decoded = text.decode(errors="replace") if error.encoding == "unicode" else text.decode("latin-1")
        before = decoded[: error.position]
        span = Span(before.count("\n") + 1, len(before) - before.rfind("\n"), 1)
        raise _not_yaml(origin, span, error.reason, []) from None
    except UnicodeDecodeError as error:
        raise _not_yaml(origin, Span(1, 1, 1), str(error), []) from None
    except RecursionError:
        raise _not_yaml(origin, Span(1, 1, 1), "nested too deeply", []) from None


def _find_places(node: yaml.Node, place: YamlPath, source: Source) -> None:
    source.keys.setdefault(place, _span(node, source.text))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _find_places(item, (*place, index), source)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            within = (*place, str(key.value))
            if within in source.keys:
                raise yaml.MarkedYAMLError(problem=f"duplicate key {key.value!r}", problem_mark=key.start_mark)
            source.keys[within] = _span(key, source.text)
            _find_places(value, within, source)
    in_flow = not isinstance(node, yaml.CollectionNode) or node.flow_style
    if in_flow and node.start_mark.index < node.end_mark.index:  # empty values have no characters
        source.values[place] = _span(node, source.text)


def _span(node: yaml.Node, text: list[str]) -> Span:
    """The span of a node in its first line."""
    start, end = node.start_mark, node.end_mark
    behind = end.column if end.line == start.line else len(text[start.line].rstrip()) if start.line < len(text) else 0
    return Span(start.line + 1, start.column + 1, max(behind - start.column, 1))


def _excerpt(text: list[str], span: Span) -> str:
    if not 0 < span.line <= len(text):
        return ""
    line, start = text[span.line - 1], span.column - 1
    first = max(0, start + min(span.length, _MAX_SHOWN // 2) - _MAX_SHOWN)
    shown, before = line[first : first + _MAX_SHOWN], line[first:start]
    left, right = "…" * (first > 0), "…" * (first + _MAX_SHOWN < len(line))
    # Tabs below tabs, and two spaces below characters that are two cells wide.
    indent = "".join(mark if mark == "\t" else " " * cell_len(mark) for mark in left + before)
    carets = "^" * max(cell_len(line[start : min(start + span.length, first + _MAX_SHOWN)]), 1)
    number = str(span.line)
    return f"  {number} | {left}{shown}{right}\n  {' ' * len(number)} | {indent}{carets}"


def _not_yaml(origin: str, span: Span, problem: str, text: list[str]) -> UsageError:
    message = f"{origin}:{span.line}:{span.column}: not valid YAML: {problem}."
    return RefusedError([(message, _excerpt(text, span), "Correct the file at this line.")])
