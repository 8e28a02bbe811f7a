"""Rules of a contract: what is taken, and that nothing else is."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lakeproof.contracts import Contract, DecimalType, Field, ListType, PrimitiveType, parse_contract
from lakeproof.contracts.expression import Call, Column, Literal, Operator
from lakeproof.contracts.rule_sql import MAX_DEPTH, MAX_SIZE, parse_rule
from lakeproof.contracts.rule_types import RuleError
from lakeproof.errors import UsageError

EVENTS = Path(__file__).parents[3] / "contracts" / "events.yaml"
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
    # It does not parse.
    "": "it is empty",
    "  ": "it is empty",
    "i >": "it does not parse at '>'",
    "(i > 1": "it does not parse",
    "s = 'x": "it does not parse",
    "i > 1, b": "it does not parse at ','",
    "i > 1 b": "it does not parse at 'b'",
    "`i` > 1": "it does not parse",
    "i > 1_000": "it does not parse",
    "i > 0x1F": "it does not parse",
    # It reaches outside.
    "SELECT 1": "it has a SELECT",
    "i IN (SELECT 1)": "it has a SELECT",
    "EXISTS (SELECT 1)": "it has a SELECT",
    "(WITH x AS (SELECT 1) SELECT * FROM x) > 1": "it has a SELECT",
    "java_method('java.lang.System', 'exit', 1)": "the function java_method is not known",
    "reflect('java.lang.System', 'exit', 1)": "the function reflect is not known",
    "read_csv('/etc/passwd') = s": "the function read_csv is not known",
    "read_text('/etc/passwd') = s": "the function read_text is not known",
    '"read_text"(s) = s': "is not possible in a rule",
    "getenv('HOME') = s": "the function getenv is not known",
    "s.read_text('x') = s": "the function read_text is not known",
    "i > 1; DROP TABLE x": "it does not parse",
    "b; b": "is not possible in a rule",
    "DROP TABLE x": "it does not parse",
    "ATTACH 'x'": "it does not parse",
    "${table}": "is not possible in a rule",
    "i = :x": "is not possible in a rule",
    "i = ?": "is not possible in a rule",
    "i = @x": "is not possible in a rule",
    "i = $1": "there is no field $1",
    # It differs between engines, moments or sessions.
    "at < CURRENT_TIMESTAMP": "CURRENT_TIMESTAMP() is not possible",
    "day < CURRENT_DATE": "CURRENT_DATE is not possible",
    "at < now()": "the function now is not known",
    "random() > 0.5": "the function random is not known",
    "LOWER(s) = 'a'": "the function LOWER is not known",
    "LEFT(s, 1) = 'a'": "LEFT(s, 1) is not possible",
    "s ILIKE 'a'": "is not possible",
    "s RLIKE 'a'": "is not possible",
    "s SIMILAR TO 'a'": "is not possible",
    "s GLOB 'a'": "is not possible",
    "s LIKE 'a' ESCAPE '!'": "is not possible",
    "s LIKE ANY ('a')": "the pattern of",
    "s LIKE s": "the pattern of",
    "s LIKE 'a\\%'": "has a backslash",
    "s = 'a\\n'": "has a backslash",
    "s = 'a' 'b'": "is not possible",
    "s || 'b' = 'ab'": "is not possible",
    "s COLLATE nocase = 'a'": "is not possible",
    "s = N'a'": "is not possible",
    "i / 2 > 1": "i / 2 is not possible",
    "i % 2 = 1": "i % 2 is not possible",
    "i & 1 = 1": "is not possible",
    "CAST(s AS INT) = 1": "the function CAST is not known",
    "s::int = 1": "is not possible",
    "DATE '2026-01-01' < day": "is not possible",
    "at > at - INTERVAL '1' DAY": "is not possible",
    "SUM(i) > 1": "the function SUM is not known",
    "ABS(i) OVER () > 1": "is not possible",
    "ROW_NUMBER() OVER () = 1": "the function ROW_NUMBER is not known",
    "COUNT(*) > 1": "the function COUNT is not known",
    "IF(b, b, b)": "the function IF is not known",
    "CASE i WHEN 1 THEN b END": "is not possible",
    "i <=> 1": "is not possible",
    "i IS DISTINCT FROM 1": "is not possible",
    "i BETWEEN SYMMETRIC 2 AND 1": "is not possible",
    "i = NULL": "NULL is not possible",
    "i IN (1, NULL)": "NULL is not possible",
    "i IN ()": "has an empty list",
    "i IS 1": "is not possible",
    "list[1] = 1": "is not possible",
    "i IN UNNEST(list)": "is not possible",
    "[i] = [1]": "is not possible",
    "b = b IS NULL": "compares what is itself a condition",
    "b = (i > 1)": "compares what is itself a condition",
    "1 < i < 3": "compares what is itself a condition",
    "b = NOT b": "compares what is itself a condition",
    "b IN (b AND b)": "compares what is itself a condition",
    "f > 1": "engines compare float differently",
    "f = f": "engines compare float differently",
    # Comments, which engines may take for hints.
    "i > 1 -- b": "it has a comment",
    "i > /* b */ 1": "it has a comment",
    "/*+ b */ i > 1": "it has a comment",
    # Names and types.
    "x > 1": "there is no field x",
    "I > 1": "there is no field I",
    "s.x > 1": "there is no field s.x",
    "a.b.c.d.e.f = 1": "there is no field a",
    "s.* = 1": "is not possible",
    "i": "it is not a condition",
    "i + 1": "it is not a condition",
    "CASE WHEN b THEN i END": "it is not a condition",
    "1 = 1": "it names no field",
    "TRUE": "it names no field",
    "NOT i": "i is neither true nor false",
    "b AND s": "s is neither true nor false",
    "CASE WHEN i THEN b END": "i is neither true nor false",
    "s > 1": "of different types",
    "i = '1'": "of different types",
    "b = 'true'": "of different types",
    "b > TRUE": "have no order",
    "b + 1 > 1": "of different types",
    "-b": "of different types",
    "-TRUE = b": "of different types",
    "ABS(s) > 1": "of different types",
    "COALESCE(i, s) = 1": "of different types",
    "at > day": "of different types",
    "at > 1": "of different types",
    "at > '2026-11-21'": "'2026-11-21' is not a timestamp",
    "at > '2026-11-21T00:00:00'": "is not a timestamp",
    "day > '2026-02-30'": "'2026-02-30' is not a date",
    "LENGTH(i) > 1": "i is not text",
    "i LIKE '1'": "i is not text",
    "list = list": "compares an object, an array or a map",
    "d > m": "a double goes with",
    "d > i + 1": "a double goes with",
    "d > 0.1234567890123456": "numbers of many digits",
    "m * m * m * m > 1": "can have 43 digits",
    "l * l > 1": "can have 39 digits",
    f"i > {'9' * 39}": "more than 38 digits",
    # Sizes.
    "b OR " * 1_000 + "b": f"it has {5 * 1000 + 1} characters",
    "(" * 300 + "b" + ")" * 300: "parts within each other",
    "NOT " * 300 + "b": "parts within each other",
    "NOT " * (MAX_DEPTH + 1) + "b": "parts within each other",
    "d > " + "d + " * 500 + "d": "parts within each other",
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
    ({"name": None}, "a rule is named None"),
    ({"name": "a b"}, "a rule is named 'a b'"),
    ({"query": None}, "the rule known has no query"),
    ({"query": "user_id <>"}, "the rule known cannot be used: it does not parse"),
    ({"query": "user > 1"}, "the rule known cannot be used: there is no field user"),
    ({"mustBe": 0}, "the rule known has mustBe, which is not judged"),
    ({"mustBeGreaterThan": 0}, "the rule known has mustBeGreaterThan"),
    ({"type": "SQL"}, "unknown type of quality 'SQL'"),
]


@pytest.mark.parametrize(("change", "message"), MISTAKES, ids=lambda part: str(part))
def test_mistakes_are_told_with_their_line(change, message):
    with pytest.raises(UsageError) as caught:
        contract(GOOD | {"name": "other"}, GOOD | change)
    text = yaml.safe_dump(yaml.safe_load(EVENTS.read_text()), sort_keys=False)
    first = len(text.splitlines())
    line = int(caught.value.message.split(":")[1])
    assert first < line <= first + 9
    assert caught.value.message.startswith(f"events.yaml:{line}: ")
    assert message in caught.value.message


def test_two_rules_of_one_name_are_refused():
    with pytest.raises(UsageError, match=r"user_id: two rules are named 'known'"):
        contract(GOOD, quality=[GOOD | {"query": "user_id IS NOT NULL"}])


def test_what_is_in_an_array_has_no_rules():
    more = {"logicalType": "array", "items": {"logicalType": "string", "quality": [dict(GOOD)]}, "required": False}
    with pytest.raises(UsageError, match=r"user_id: the rule known is about what is in an array"):
        contract(**more)


def test_a_contract_without_rules_does_not_wait_for_sqlglot():
    script = "import sys; from lakeproof.contracts import load_contract; from pathlib import Path\n"
    script += f"load_contract(Path({str(EVENTS.parent)!r}), 'events'); print('sqlglot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr
