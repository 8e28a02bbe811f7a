"""The condition of an erasure, which identifies a person: over fields of the contract, for rows and bytes.

It is a list of alternatives, each of which maps fields to values: `a = 1 AND (b = 2 OR b = 3)` has two alternatives.
"""

import hashlib
import hmac
import itertools
import json
import operator
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any

import sqlglot
from pydantic import SecretStr
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakeproof.contracts import Contract, DecimalType, Field, ObjectType, PrimitiveType, Type
from lakeproof.errors import UsageError
from lakeproof.tables.names import KEY
from lakeproof.wording import first_line

Value = str | int | Decimal | bool
Alternative = Mapping[str, Value]
"""Path of a field, and its value."""

_HINT = (
    "Write FIELD = VALUE or FIELD IN (VALUE, …), joined by AND and OR, over fields of the contract, like "
    "\"user_id = 'u1'\"."
)
_MOST = 1_000  # alternatives
_TEXT = (PrimitiveType.STRING, PrimitiveType.SCALAR)
_WHOLE = (PrimitiveType.INT, PrimitiveType.LONG)
_ESCAPED = re.compile(
    rb"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL
)
_CONTROLS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_GZIP = b"\x1f\x8b"
_WORD = rb"[0-9A-Za-z_]"
_JOIN = rb"[.+@-]"  # between words, it makes one name of them: jo.ann@example.com is somebody else than ann@example.com
_TWO_BYTES = range(0xC0, 0x800)  # letters of Europe and the Near East; later scripts may have no spaces between words
_LETTER = re.compile(
    b"|".join(
        lead + b"[" + re.escape(b"".join(trail for _, trail in each)) + b"]"
        for lead, each in itertools.groupby(
            ((raw[:1], raw[1:]) for raw in (chr(code).encode() for code in _TWO_BYTES if chr(code).isalnum())),
            operator.itemgetter(0),
        )
    )
)
"""A letter or digit that has two bytes in UTF-8."""
_JOINED = re.compile(_JOIN)
_ESCAPED_NEXT = re.compile(rb"\\u[0-9A-Fa-f]{4}")
_MOST_UNPACKED = 1 << 30
_KEYS = ("key", KEY)


@dataclass(frozen=True)
class Condition:
    """Alternatives; a record belongs to the person if it has all values of one alternative."""

    alternatives: tuple[Alternative, ...]
    former_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Former names of renamed fields, the oldest first: what landed before has these."""

    def keyed_hash(self, key: SecretStr) -> str:
        """Return a hash of the condition that can only be computed with the key."""
        # By the first names: after a field was renamed, the same condition has the same hash.
        pairs = (
            sorted((self.paths(path)[0], str(value)) for path, value in each.items()) for each in self.alternatives
        )
        text = "\n".join(sorted(map(json.dumps, pairs)))
        return hmac.new(key.get_secret_value().encode(), text.encode(), hashlib.sha256).hexdigest()

    @cached_property
    def _needles(self) -> tuple[tuple[re.Pattern[bytes], ...], ...]:
        return tuple(
            tuple(_needle(self.paths(path), value) for path, value in each.items()) for each in self.alternatives
        )

    def paths(self, path: str) -> list[str]:
        """Return the paths that a field ever had, the oldest first."""
        name, dot, rest = path.partition(".")
        return [f"{each}{dot}{rest}" for each in (*self.former_names.get(name, ()), name)]

    def is_in_record(self, record: Any) -> bool:
        """Return whether a JSON record has all values of one alternative."""
        return any(
            all(
                any(_equal(_at(record, each), value) for each in self.paths(path))
                for path, value in alternative.items()
            )
            for alternative in self.alternatives
        )

    def is_in_bytes(self, raw: bytes) -> bool:
        """Return whether bytes have all values of one alternative: plain, escaped as in JSON, or compressed."""
        plain = unpacked(raw)
        for text in (plain, unescaped(plain)):
            if any(all(_has(text, needle) for needle in each) for each in self._needles):
                return True
        try:
            return b"{" in plain and self.is_in_record(json.loads(plain))
        except (ValueError, RecursionError):
            return False

    def is_in_values(self, values: Iterable[tuple[str, Any]]) -> bool:
        """Return whether values, each with the name of its column, have all values of one alternative."""
        return self.is_in_bytes(b"\n".join(b'"%s": %s' % (name.encode(), _bytes(value)) for name, value in values))

    def longest_texts(self) -> Sequence[str] | None:
        """Return texts of which any data of the person has at least one; None if an alternative has no text."""
        texts = [[value for value in each.values() if isinstance(value, str)] for each in self.alternatives]
        return sorted({max(each, key=len) for each in texts}) if all(texts) else None


def read_condition(text: str, contract: Contract) -> Condition:
    """Read a condition over the fields of a contract."""
    try:
        parsed = [each for each in sqlglot.parse(text, dialect="duckdb") if each is not None]
    except SqlglotError as error:
        raise UsageError(f"--where: {text!r} is not a condition: {first_line(error)}.", _HINT) from error
    if len(parsed) != 1:
        raise UsageError(f"--where: expected a condition, got {text!r}.", _HINT)
    found = []
    for each in _alternatives(parsed[0], contract):
        if each not in found:
            found.append(each)
    if not found:
        raise UsageError(f"--where: no record can meet {text!r}.", _HINT)
    return Condition(tuple(found), {each.name: each.former_names for each in contract if each.former_names})


def unpacked(raw: bytes) -> bytes:
    """Unpack compressed bytes up to any damage; return other bytes unchanged."""
    if not raw.startswith(_GZIP):
        return raw
    found, rest = b"", raw
    while rest.startswith(_GZIP) and len(found) < _MOST_UNPACKED:
        member = zlib.decompressobj(wbits=31)
        try:
            found += member.decompress(rest, _MOST_UNPACKED)
        except zlib.error:
            # The output before the damage is lost with the error: unpack piece by piece.
            found += _salvaged(rest)
            break
        rest = member.unused_data.lstrip(b"\0")  # zeros may follow each member
    return found or raw


def _salvaged(raw: bytes) -> bytes:
    member, found = zlib.decompressobj(wbits=31), b""
    for at in range(0, len(raw), 64):
        try:
            found += member.decompress(raw[at : at + 64])
        except zlib.error:
            break
    return found


def unescaped(raw: bytes) -> bytes:
    r"""Resolve JSON's escapes in bytes, such as ``\u0075``; leave all else unchanged."""
    if b"\\" not in raw:
        return raw

    def resolved(found: re.Match[bytes]) -> bytes:
        if found[1]:  # a surrogate pair is one character
            pair = bytes.fromhex((found[1] + found[2]).decode())
            return pair.decode("utf-16-be").encode()
        if found[3]:
            return chr(int(found[3], 16)).encode(errors="surrogatepass")
        return _CONTROLS.get(found[4], found[4])

    return _ESCAPED.sub(resolved, raw)


def _alternatives(node: exp.Expr, contract: Contract) -> list[dict[str, Value]]:
    match node:
        case exp.Paren():
            return _alternatives(node.this, contract)
        case exp.Or():
            return [*_alternatives(node.left, contract), *_alternatives(node.right, contract)]
        case exp.And():
            both = itertools.product(_alternatives(node.left, contract), _alternatives(node.right, contract))
            return list(_joined(both))
        case exp.EQ():
            column, value = node.left, node.right
            if not isinstance(column, exp.Column):
                column, value = value, column
            return [_equals(column, value, contract)]
        case exp.In() if node.expressions:
            return [_equals(node.this, each, contract) for each in node.expressions]
        case _:
            raise UsageError(f"--where: {node.sql(dialect='duckdb')!r} cannot be used in an erasure.", _HINT)


def _joined(pairs: Iterator[tuple[dict[str, Value], dict[str, Value]]]) -> Iterator[dict[str, Value]]:
    for number, (left, right) in enumerate(pairs):
        if number >= _MOST:
            raise UsageError(f"--where: it has more than {_MOST:,} alternatives.", "Erase in several steps.")
        if all(right.get(path, value) == value for path, value in left.items()):
            yield left | right


def _equals(column: exp.Expr, value: exp.Expr, contract: Contract) -> dict[str, Value]:
    if not isinstance(column, exp.Column):
        raise UsageError(f"--where: {column.sql(dialect='duckdb')!r} is not a field.", _HINT)
    path = ".".join(part.name for part in column.parts)
    kind = _type_of(path, contract)
    if isinstance(value, exp.Neg) and isinstance(value.this, exp.Literal):
        value = exp.Literal(this=f"-{value.this.this}", is_string=value.this.is_string)
    if kind is PrimitiveType.BOOLEAN and isinstance(value, exp.Boolean):
        return {path: bool(value.this)}
    if not isinstance(value, exp.Literal):
        raise UsageError(f"--where: {value.sql(dialect='duckdb')!r} is not a value.", _HINT)
    text = str(value.this)
    if kind in _TEXT and value.is_string and text:
        return {path: text}
    try:
        if not value.is_string and kind in _WHOLE:
            return {path: int(text)}
        if not value.is_string and isinstance(kind, DecimalType):
            return {path: Decimal(text)}
    except (ValueError, InvalidOperation):
        pass
    raise UsageError(
        f"--where: {value.sql(dialect='duckdb')} cannot be compared with the field {path}.",
        "Use a text that is not empty for strings, and a number for integers and decimals. Others cannot be used.",
    )


def _type_of(path: str, contract: Contract) -> Type:
    fields: list[Field] = list(contract)
    kind: Type = PrimitiveType.STRING
    for name in path.split("."):
        found = next((each for each in fields if each.name == name), None)
        if found is None:
            raise UsageError(
                f"--where: {path} is not a field of the contract of {contract.stream}.",
                f"Its fields are {', '.join(each.name for each in contract)}.",
            )
        kind = found.type
        fields = list(kind.fields) if isinstance(kind, ObjectType) else []
    return kind


def _at(record: Any, path: str) -> Any:
    for name in path.split("."):
        record = record.get(name) if isinstance(record, dict) else None
    return record


def _equal(found: Any, value: Value) -> bool:
    if isinstance(found, bool) or isinstance(value, bool):
        return found is value
    if isinstance(value, str):
        return str(found) == value if isinstance(found, int | float | str) else False
    try:
        return Decimal(str(found)) == value
    except InvalidOperation:
        return False


def _has(raw: bytes, needle: re.Pattern[bytes]) -> bool:
    found = needle.search(raw)
    while found and _is_part(raw, found):
        found = needle.search(raw, found.start() + 1)
    return found is not None


def _is_part(raw: bytes, found: re.Match[bytes]) -> bool:
    """Return whether a text in UTF-8 is a part of a longer word with letters beyond ASCII."""
    if found[0].startswith(b'"') or b"\0" in found[0]:
        return False  # a number, or UTF-16
    start, end = found.span()
    start -= bool(_JOINED.fullmatch(raw, start - 1, start)) if start else 0
    end += bool(_JOINED.match(raw, end))
    # Before an escape, the text is found where escapes are resolved, if it ends there.
    return bool(
        _LETTER.fullmatch(raw, max(start - 2, 0), start) or _LETTER.match(raw, end) or _ESCAPED_NEXT.match(raw, end)
    )


def _needle(paths: Sequence[str], value: Value) -> re.Pattern[bytes]:
    """Return a pattern for a text that is not part of a longer name, or for another value after its field's name.

    A text of digits looks like sizes and counts: it must be a JSON string, or come after its field's name.
    """
    text, names = _text(value), [*(path.rpartition(".")[2] for path in paths), *_KEYS * isinstance(value, str)]
    named = rb'"(?:%s)"\s*:\s*"?%s(?![0-9A-Za-z_.]|[+@-]%s)' % (_any_of(names), re.escape(text.encode()), _WORD)
    if not isinstance(value, str):
        return re.compile(named)
    is_number = text.isascii() and text.isdigit()
    written = f'"{text}"' if is_number else text
    forms = _any_of([written], "utf-8", "utf-16-le", "utf-16-be")
    found = rb"(?<!%s)(?<!%s%s)(?:%s)(?!%s?%s)" % (_WORD, _WORD, _JOIN, forms, _JOIN, _WORD)
    return re.compile(found + b"|" + named if is_number else found)


def _any_of(texts: Sequence[str], *encodings: str) -> bytes:
    return b"|".join(re.escape(each.encode(form)) for each in texts for form in encodings or ("utf-8",))


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return unescaped(unpacked(value))
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, default=str, ensure_ascii=False).encode(errors="surrogatepass")
    return _text(value).encode(errors="surrogatepass")
