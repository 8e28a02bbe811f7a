r"""Regular expressions with the same meaning in every engine that reads a contract.

Patterns are evaluated with RE2, in linear time, and exported in JSON Schemas, which use ECMA-262. Only syntax with the
same meaning in both is supported: literals, ``.``, classes, ``\d \D \w \W``, groups, ``|``, ``* + ? {n,m}``, ``^`` and
``$``. As in JSON Schema, a pattern can match anywhere in the text; ``^…$`` matches the whole text.
"""

import re

MAX_SIZE = 1_000  # characters and ranges of a pattern with repeats expanded; larger ones may not fit into RE2
MAX_DEPTH = 50  # nested groups

_SYNTAX = "^$\\.*+?()[]{}|/"
_ESCAPED = _SYNTAX + "tnrfv"
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}
_REPEAT = re.compile(r"(?:[*+?]|\{([0-9]{1,4})(?:(,)([0-9]{1,4})?)?\})\??")
_ANY = "[^\\n\\r\u2028\u2029]"
# Expanded, since some engines include other digits and letters.
_MEMBERS = {"d": "0-9", "w": "A-Za-z0-9_"}
_CLASSES = {"d": "[0-9]", "D": "[^0-9]", "w": "[A-Za-z0-9_]", "W": "[^A-Za-z0-9_]"}


class PatternError(Exception):
    """Error for a pattern that cannot be used; the message is the reason."""


def portable(pattern: str) -> str:
    r"""Check a pattern; return it with ``.`` and ``\d`` written out as ECMA-262 defines them."""
    return _Parser(pattern).parse()


class _Parser:
    """Each method parses from `_at`, appends to `_out`, and returns the size of the parsed part."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._out: list[str] = []

    def parse(self) -> str:
        self._branches(0)
        if self._next():
            raise PatternError("unmatched )")
        return "".join(self._out)

    def _branches(self, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise PatternError(f"groups are nested more than {MAX_DEPTH} levels deep")
        size = 1
        while (letter := self._next()) and letter != ")":
            size += self._take() if letter == "|" else self._piece(depth)
            if size > MAX_SIZE:
                raise PatternError(f"more than {MAX_SIZE} characters when its repeats are expanded")
        return size

    def _piece(self, depth: int) -> int:
        letter = self._next()
        if letter in "^$":
            self._take()
            if _REPEAT.match(self._text, self._at):
                raise PatternError(f"{letter} cannot be repeated")
            return 1
        match letter:
            case "(":
                size = self._group(depth)
            case "[":
                size = self._class()
            case ".":
                self._at += 1
                self._out.append(_ANY)
                size = 1
            case "\\":
                self._escape(_ESCAPED, _CLASSES)
                size = 1
            case _ if letter in _SYNTAX and letter != "/":
                raise PatternError(
                    f"unexpected {letter} at character {self._at + 1}; to match it literally, write \\{letter}"
                )
            case _:
                size = self._take()
        return size * self._repeat()

    def _group(self, depth: int) -> int:
        if self._text.startswith("(?", self._at) and not self._text.startswith("(?:", self._at):
            raise PatternError("of the groups with (?, only (?:…) is supported")
        self._take(3 if self._text.startswith("(?:", self._at) else 1)
        size = self._branches(depth + 1)
        if not self._next():
            raise PatternError("unmatched (")
        self._take()
        return size

    def _repeat(self) -> int:
        """Parse a quantifier; return the maximum number of copies that it expands to."""
        match = _REPEAT.match(self._text, self._at)
        if not match:
            return 1
        self._take(len(match[0]))
        if _REPEAT.match(self._text, self._at):
            raise PatternError(f"two quantifiers in a row at character {self._at + 1}")
        least = int(match[1] or 1)
        most = int(match[3]) if match[3] else least + bool(match[2])
        if least > most:
            raise PatternError(f"in {match[0]}, the minimum is greater than the maximum")
        return max(most, 1)

    def _class(self) -> int:
        self._take(2 if self._text.startswith("[^", self._at) else 1)
        if self._next() == "]":
            raise PatternError("an empty class [] is not supported")
        size = 0
        while (letter := self._next()) != "]":
            size += 1
            first = self._member()
            if self._next() != "-" or self._text.startswith("-]", self._at):
                continue
            self._take()
            last = self._member()
            if not first or not last or first > last:
                raise PatternError(f"invalid range after {letter}; to match - in a class, write \\-")
        self._take()
        return size

    def _member(self) -> str:
        """Parse one character of a class; return it, or "" for an escape of several characters."""
        letter = self._next()
        if not letter:
            raise PatternError("unmatched [")
        if letter == "[":
            raise PatternError("unescaped [ in a class; write \\[")
        if letter != "\\":
            self._take()
            return letter
        escaped = self._escape(_ESCAPED + "-", _MEMBERS)
        return "" if escaped in _MEMBERS else _CONTROLS.get(escaped, escaped)

    def _escape(self, known: str, classes: dict[str, str]) -> str:
        escaped = self._text[self._at + 1 : self._at + 2]
        if escaped in classes:
            self._at += 2
            self._out.append(classes[escaped])
        elif escaped and escaped in known:
            self._take(2)
        else:
            raise PatternError(f"\\{escaped} is not supported")
        return escaped

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, count: int = 1) -> int:
        self._out.append(self._text[self._at : self._at + count])
        self._at += count
        return 1
