"""Rules of a contract: valid rules are accepted, and all others rejected."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lakeproof.contracts import Contract, DecimalType, Field, ListType, PrimitiveType, parse_contract
from lakeproof.contracts.rules.expression import Call, Column, Literal, Operator
from lakeproof.contracts.rules.sql import MAX_DEPTH, MAX_SIZE, parse_rule
from lakeproof.contracts.rules.types import RuleError
from lakeproof.errors import UsageError

EVENTS = Path(__file__).parents[4] / "contracts" / "events.yaml"
FIELDS = (
    Field("s", PrimitiveType.STRING),
    Field("b", PrimitiveType.BOOLEAN),
    Field("i", PrimitiveType.INT),
    Field("l", PrimitiveType.LONG),
    Field("f", PrimitiveType.FLOAT),
    Field("d", PrimitiveType.DOUBLE),
    Field("m", DecimalType(10, 2)),
    Field("at", PrimitiveType.TIMESTAMP),
    Field("day", PrimitiveType.DATE),
    Field("list", ListType(PrimitiveType.INT)),
    Field("order", PrimitiveType.INT),
)

REFUSED = {
    # Does not parse.
    "": "it is empty",
    "  ": "it is empty",
    "i >": "syntax error at '>'",
    "(i > 1": "syntax error",
    "s = 'x": "syntax error",
    "i > 1, b": "syntax error at ','",
    "i > 1 b": "syntax error at 'b'",
    "`i` > 1": "syntax error",
    "i > 1_000": "syntax error",
    "i > 0x1F": "syntax error",
    # Accesses data outside the record.
    "SELECT 1": "it has a SELECT",
    "i IN (SELECT 1)": "it has a SELECT",
    "EXISTS (SELECT 1)": "it has a SELECT",
    "(WITH x AS (SELECT 1) SELECT * FROM x) > 1": "it has a SELECT",
    "java_method('java.lang.System', 'exit', 1)": "unknown function java_method",
    "reflect('java.lang.System', 'exit', 1)": "unknown function reflect",
    "read_csv('/etc/passwd') = s": "unknown function read_csv",
    "read_text('/etc/passwd') = s": "unknown function read_text",
    '"read_text"(s) = s': "is not supported",
    "getenv('HOME') = s": "unknown function getenv",
    "s.read_text('x') = s": "unknown function read_text",
    "i > 1; DROP TABLE x": "syntax error",
    "b; b": "is not supported",
    "DROP TABLE x": "syntax error",
    "ATTACH 'x'": "syntax error",
    "${table}": "is not supported",
    "i = :x": "is not supported",
    "i = ?": "is not supported",
    "i = @x": "is not supported",
    "i = $1": "unknown field $1",
    # Differs between engines, times or sessions.
    "at < CURRENT_TIMESTAMP": "CURRENT_TIMESTAMP() is not supported",
    "day < CURRENT_DATE": "CURRENT_DATE is not supported",
    "at < now()": "unknown function now",
    "random() > 0.5": "unknown function random",
    "LOWER(s) = 'a'": "unknown function LOWER",
    "LEFT(s, 1) = 'a'": "LEFT(s, 1) is not supported",
    "s ILIKE 'a'": "is not supported",
    "s RLIKE 'a'": "is not supported",
    "s SIMILAR TO 'a'": "is not supported",
    "s GLOB 'a'": "is not supported",
    "s LIKE 'a' ESCAPE '!'": "is not supported",
    "s LIKE ANY ('a')": "the pattern of",
    "s LIKE s": "the pattern of",
    "s LIKE 'a\\%'": "has a backslash",
    "s = 'a\\n'": "has a backslash",
    "s = 'a' 'b'": "is not supported",
    "s || 'b' = 'ab'": "is not supported",
    "s COLLATE nocase = 'a'": "is not supported",
    "s = N'a'": "is not supported",
    "i / 2 > 1": "i / 2 is not supported",
    "i % 2 = 1": "i % 2 is not supported",
    "i & 1 = 1": "is not supported",
    "CAST(s AS INT) = 1": "unknown function CAST",
    "s::int = 1": "is not supported",
    "DATE '2026-01-01' < day": "is not supported",
    "at > at - INTERVAL '1' DAY": "is not supported",
    "SUM(i) > 1": "unknown function SUM",
    "ABS(i) OVER () > 1": "is not supported",
    "ROW_NUMBER() OVER () = 1": "unknown function ROW_NUMBER",
    "COUNT(*) > 1": "unknown function COUNT",
    "IF(b, b, b)": "unknown function IF",
    "CASE i WHEN 1 THEN b END": "is not supported",
    "i <=> 1": "is not supported",
    "i IS DISTINCT FROM 1": "is not supported",
    "i BETWEEN SYMMETRIC 2 AND 1": "is not supported",
    "i = NULL": "NULL is not supported",
    "i IN (1, NULL)": "NULL is not supported",
    "i IN ()": "has an empty list",
    "i IS 1": "is not supported",
    "list[1] = 1": "is not supported",
    "i IN UNNEST(list)": "is not supported",
    "[i] = [1]": "is not supported",
    "b = b IS NULL": "compares a condition",
    "b = (i > 1)": "compares a condition",
    "1 < i < 3": "compares a condition",
    "b = NOT b": "compares a condition",
    "b IN (b AND b)": "compares a condition",
    "f > 1": "engines compare float differently",
    "f = f": "engines compare float differently",
    # Comments, which engines may interpret as hints.
    "i > 1 -- b": "it has a comment",
    "i > /* b */ 1": "it has a comment",
    "/*+ b */ i > 1": "it has a comment",
    # Names and types.
    "x > 1": "unknown field x",
    "I > 1": "unknown field I",
    "s.x > 1": "unknown field s.x",
    "a.b.c.d.e.f = 1": "unknown field a",
    "s.* = 1": "is not supported",
    "i": "it is not a condition",
    "i + 1": "it is not a condition",
    "CASE WHEN b THEN i END": "it is not a condition",
    "1 = 1": "it does not use any field",
    "TRUE": "it does not use any field",
    "NOT i": "i is not a boolean",
    "b AND s": "s is not a boolean",
    "CASE WHEN i THEN b END": "i is not a boolean",
    "s > 1": "mixes different types",
    "i = '1'": "mixes different types",
    "b = 'true'": "mixes different types",
    "b > TRUE": "cannot be ordered",
    "b + 1 > 1": "mixes different types",
    "-b": "mixes different types",
    "-TRUE = b": "mixes different types",
    "ABS(s) > 1": "mixes different types",
    "COALESCE(i, s) = 1": "mixes different types",
    "at > day": "mixes different types",
    "at > 1": "mixes different types",
    "at > '2026-11-21'": "'2026-11-21' is not a timestamp",
    "at > '2026-11-21T00:00:00'": "is not a timestamp",
    "day > '2026-02-30'": "'2026-02-30' is not a date",
    "LENGTH(i) > 1": "i is not text",
    "i LIKE '1'": "i is not text",
    "list = list": "compares an object, an array or a map",
    "d > m": "a double can only be combined with",
    "d > i + 1": "a double can only be combined with",
    "d > 0.1234567890123456": "round a long number",
    "m * m * m * m > 1": "can have 43 digits",
    "l * l > 1": "can have 39 digits",
    f"i > {'9' * 39}": "more than 38 digits",
    # Sizes.
    "b OR " * 1_000 + "b": f"it has {5 * 1000 + 1} characters",
    "(" * 300 + "b" + ")" * 300: f"nested more than {MAX_DEPTH} levels deep",
    "NOT " * 300 + "b": f"nested more than {MAX_DEPTH} levels deep",
    "NOT " * (MAX_DEPTH + 1) + "b": f"nested more than {MAX_DEPTH} levels deep",
    "d > " + "d + " * 500 + "d": f"nested more than {MAX_DEPTH} levels deep",
}


@pytest.mark.parametrize("sql", REFUSED, ids=lambda sql: sql[:60] or "nothing")
def test_refused(sql):
    with pytest.raises(RuleError) as caught:
        parse_rule(sql, FIELDS)
    assert REFUSED[sql] in str(caught.value)
    assert caught.value.hint
    assert len(str(caught.value)) < 200


def test_taken():
    i, one = Column(("i",), PrimitiveType.INT), Literal(1, PrimitiveType.LONG)
    boolean = PrimitiveType.BOOLEAN
    assert parse_rule("s IS NULL", FIELDS) == Call(Operator.IS_NULL, (Column(("s",), PrimitiveType.STRING),), boolean)
    widened = Call(Operator.CONVERT, (i,), PrimitiveType.LONG)
    assert parse_rule("i < 1", FIELDS) == Call(Operator.LESS, (widened, one), boolean)
    assert parse_rule("1 > i", FIELDS) == parse_rule("((i)) <1 ", FIELDS)
    assert parse_rule('"order" = 1', FIELDS)
    assert parse_rule("b OR " * (MAX_SIZE // 5 - 1) + "b", FIELDS)
    assert parse_rule("NOT " * MAX_DEPTH + "b", FIELDS)


def contract(*entries: dict[str, object], **more: object) -> Contract:
    document = yaml.safe_load(EVENTS.read_text())
    table = document["schema"][0]
    table["quality"] = list(entries)
    table["properties"][0] |= more
    return parse_contract(yaml.safe_dump(document, sort_keys=False).encode(), "events.yaml")


def test_rules_of_the_record_and_of_its_fields():
    found = contract(
        {"type": "sql", "name": "sold", "query": "event_type <> 'purchase' OR\n  product_id IS NOT NULL"},
        {"type": "text", "description": "for people"},
        quality=[{"type": "sql", "name": "known", "query": "user_id <> ''", "description": "who\ndid it"}],
    )
    assert [(rule.name, rule.path, rule.text) for rule in found.rules] == [
        ("sold", "$", "event_type <> 'purchase' OR product_id IS NOT NULL"),
        ("known", "$.user_id", "who did it"),
    ]


GOOD = {"type": "sql", "name": "known", "query": "user_id <> ''"}
MISTAKES = [
    ({"name": None}, "None is not a valid name for a rule"),
    ({"name": "a b"}, "'a b' is not a valid name for a rule"),
    ({"query": None}, "the rule known has no query"),
    ({"query": "user_id <>"}, "invalid rule known: syntax error"),
    ({"query": "user > 1"}, "invalid rule known: unknown field user"),
    ({"mustBe": 0}, "the rule known has mustBe, which is not supported"),
    ({"mustBeGreaterThan": 0}, "the rule known has mustBeGreaterThan"),
    ({"type": "SQL"}, "unknown quality type 'SQL'"),
]


@pytest.mark.parametrize(("change", "message"), MISTAKES, ids=lambda part: str(part))
def test_mistakes_are_told_with_their_line(change, message):
    with pytest.raises(UsageError) as caught:
        contract(GOOD | {"name": "other"}, GOOD | change)
    text = yaml.safe_dump(yaml.safe_load(EVENTS.read_text()), sort_keys=False)
    first = len(text.splitlines())
    line = int(caught.value.message.split(":")[1])
    assert first < line <= first + 9
    assert caught.value.message.startswith(f"events.yaml:{line}:")
    assert message in caught.value.message


def test_two_rules_of_one_name_are_refused():
    with pytest.raises(UsageError, match=r"user_id: two rules are named 'known'"):
        contract(GOOD, quality=[GOOD | {"query": "user_id IS NOT NULL"}])


def test_what_is_in_an_array_has_no_rules():
    more = {"logicalType": "array", "items": {"logicalType": "string", "quality": [dict(GOOD)]}, "required": False}
    with pytest.raises(UsageError, match=r"user_id: the rule known is on a value in an array"):
        contract(**more)


def test_a_contract_without_rules_does_not_wait_for_sqlglot():
    script = "import sys; from lakeproof.contracts import load_contract; from pathlib import Path\n"
    script += f"load_contract(Path({str(EVENTS.parent)!r}), 'events'); print('sqlglot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr
