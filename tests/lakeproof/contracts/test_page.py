"""The pages in docs/contracts/ are correct."""

import json
import os
import re
import shlex
import subprocess
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from textwrap import indent

import pytest
import yaml
from tests.judging import units_of
from tests.lakeproof.whatif.lakes import Lake
from tests.programs import forked

from lakeproof.contracts import (
    Breaker,
    BreakerAction,
    DecimalType,
    DerivedFrom,
    DriftPolicy,
    PrimitiveType,
    Silver,
    SilverStrategy,
    TimeForm,
    TimeFormat,
    parse_contract,
)
from lakeproof.contracts.constraints import known_options
from lakeproof.contracts.diff import Compatibility, changes, compatibility
from lakeproof.contracts.infer.draft import MIN_FOR_EACH, MIN_FOR_ENUM
from lakeproof.contracts.infer.observed import MAX_VALUES
from lakeproof.contracts.pattern import PatternError, portable
from lakeproof.contracts.rules.sql import parse_rule
from lakeproof.contracts.rules.types import RuleError
from lakeproof.errors import UsageError
from lakeproof.judge.batch import Judge

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "docs" / "contracts" / f"{name}.md" for name in ("README", "schema", "rules", "drift", "change")]
PAGE = "\n".join(page.read_text() for page in PAGES)
EXAMPLE, TIMES, DERIVED, *SNIPPETS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def table(*header: str) -> list[list[str]]:
    """Return the rows of the table whose header starts with these cells."""
    lines = iter(PAGE.splitlines())
    for line in lines:
        if line.startswith(f"| {' | '.join(header)}"):
            next(lines)
            break
    rows = []
    for line in lines:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    raise AssertionError(header)


def test_the_example_is_a_contract_of_under_30_lines():
    assert len(EXAMPLE.splitlines()) < 30
    contract = parse_contract(EXAMPLE.encode(), "orders.yaml")
    assert (contract.stream, contract.primary_key, contract.event_time) == ("orders", ("order_id",), "ordered_at")


@pytest.mark.parametrize(("mistake", "said"), table("the mistake"))
def test_each_mistake_is_told_so(mistake, said):
    key, value = mistake.strip("`").split(": ")
    field = {"name": "channel", "logicalType": "string"} | {key: yaml.safe_load(value)}
    broken = re.sub(
        r"\{name: channel.*\}$", lambda _: yaml.safe_dump(field, default_flow_style=True).strip(), EXAMPLE, flags=re.M
    )
    with pytest.raises(UsageError) as caught:
        parse_contract(broken.encode(), "orders.yaml")
    assert caught.value.message == said.strip("`")


def test_the_table_of_types_is_complete():
    rows = table("logicalType", "physicalType", "column")
    listed = {re.search(r"`([\w(),]+)`", physical)[1] for _, physical, *_ in rows if physical}
    assert listed == {*PrimitiveType, "decimal(p,s)"}
    options = {
        (): "none",
        known_options(PrimitiveType.STRING): "length, pattern",
        known_options(PrimitiveType.INT): "range",
        known_options(PrimitiveType.TIMESTAMP): "range, [format](#times)",
    }
    for logical, physical, _, constraints in rows:
        name = physical and re.search(r"`([\w(),]+)`", physical)[1]
        kind = DecimalType(10, 2) if name == "decimal(p,s)" else PrimitiveType(name) if name else None
        assert options[known_options(kind)] == constraints, logical
        if kind:
            added = {"name": "x", "logicalType": logical.strip("`"), "physicalType": name.replace("p,s", "10,2")}
            if "default" in physical:
                del added["physicalType"]
            document = yaml.safe_load(EXAMPLE)
            document["schema"][0]["properties"].append(added)
            assert parse_contract(yaml.safe_dump(document).encode(), "x").fields[-1].type == kind


def test_the_breaker_is_read_as_listed():
    rows = table("key of the breaker", "expected value")
    defaults = {key.strip("`"): value for key, _, value in rows}
    given = ", ".join(f"{key}: {value}" for key, value in defaults.items())
    (inline,) = re.findall(r"`- ({property: breaker, .*})`", PAGE)
    event_time = "  - {property: eventTime, value: ordered_at}\n"

    def read(line: str) -> Breaker:
        return parse_contract(EXAMPLE.replace(event_time, f"{event_time}  - {line}\n").encode(), "x").breaker

    assert list(defaults) == ["share", "units", "over", "action"]
    assert read(f"{{property: breaker, value: {{{given}}}}}") == BASE.breaker == Breaker()
    assert read(inline).action is BreakerAction.PAUSE
    assert re.findall(r"`(warn|pause)`:", rows[3][1]) == [*BreakerAction]


def test_silver_is_read_as_listed():
    rows = table("property", "expected value")
    assert [row[0] for row in rows] == ["`silverHorizon`", "`silverStrategy`"]
    event_time = "  - {property: eventTime, value: ordered_at}\n"
    listed = {name.strip("`"): re.findall(r"`([a-z0-9 ]+)`", text) for name, text in rows}
    assert len(listed["silverHorizon"]) == 4
    assert listed["silverStrategy"] == [*SilverStrategy]
    for name, values in listed.items():
        read = [
            parse_contract(
                EXAMPLE.replace(event_time, f"{event_time}  - {{property: {name}, value: {value}}}\n").encode(), "x"
            ).silver
            for value in values
        ]
        assert read[0] == BASE.silver
        assert None not in read
        assert len(set(read)) == len(values)


def test_the_options_are_those_that_are_judged():
    listed = {name for row in table("option", "holds if") for name in re.findall(r"`(\w+)`", row[0])}
    assert listed == {*known_options(PrimitiveType.STRING), *known_options(PrimitiveType.INT)}


def test_the_formats_of_timestamps_are_those_that_are_read():
    listed = [name for row in table("`format`", "a value is") for name in re.findall(r"`([^`]+)`", row[0])]
    assert sorted(listed) == sorted(TimeFormat)
    created, paid = parse_contract((EXAMPLE + indent(TIMES, " " * 6)).encode(), "x").fields[-2:]
    assert (created.time, paid.time) == (
        TimeForm(TimeFormat.EPOCH_MS),
        TimeForm(TimeFormat.SPACE_LOCAL, "Europe/Berlin"),
    )
    assert created.constraints.minimum


@pytest.mark.parametrize(("pattern", "zone", "value", "stored"), table("format", "zone", "value"))
def test_each_time_is_stored_so(pattern, zone, value, stored):
    options = {"format": pattern.strip("`")} | ({"defaultTimezone": zone.strip("`")} if zone else {})
    contract = one(f"logicalType: timestamp, logicalTypeOptions: {json.dumps(options)}", required=True)
    (field,) = (field for field in contract if field.name == "x")
    record = b'{"x": %b}' % value.strip("`").encode()
    (row,) = units_of(Judge(replace(contract, fields=(field,), rules=())).judge(record))
    if row["reasons"]:
        assert [reason["code"] for reason in row["reasons"]] == [stored]
    else:
        assert row["x"].isoformat().replace("+00:00", "Z") == stored.strip("`")


def test_patterns_are_taken_and_refused_as_listed():
    rows = table("taken", "refused")
    taken = [text for row in rows for text in re.findall(r"`([^`]+)`", row[0])]
    assert len(taken) > 10
    for text in taken:
        portable(("a" + text if text[0] in "*+?{" else text).replace("…", "a").replace("{n", "{2").replace("m}", "3}"))
    for text in (r"\s", r"\b", r"\p{L}", r"\1", "a++", "(?=a)", "a{1001}"):
        with pytest.raises(PatternError):
            portable(text)


def test_rules_are_taken_and_refused_as_listed():
    (rules,) = re.findall(r"^```text\n(schema:.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    document = yaml.safe_load(EXAMPLE)
    document["schema"][0]["quality"] = yaml.safe_load(rules)["schema"][0]["quality"]
    (rule,) = parse_contract(yaml.safe_dump(document).encode(), "x").rules
    assert (rule.name, rule.path) == ("shop_has_total", "$")
    fields = BASE.fields
    for sql in (
        "channel IS NOT NULL AND (total > 0) IS TRUE",
        "total <= 1.50 OR NOT total BETWEEN 2 AND 3 OR total IN (1, 2)",
        "lines IS NULL OR ABS(total * 2 - 1) + 1 >= LENGTH(channel)",
        "COALESCE(channel, 'web') LIKE 'w%' AND CASE WHEN total < 1 THEN TRUE ELSE FALSE END",
        "ordered_at <> '2026-11-21T00:00:00Z'",
    ):
        assert parse_rule(sql, fields)
    for sql in (
        "total / 2 > 1",
        "total % 2 = 1",
        "LOWER(channel) = 'web'",
        "UPPER(channel) = 'WEB'",
        "lines.count > 1",
    ):
        with pytest.raises(RuleError):
            parse_rule(sql, fields)


@pytest.mark.parametrize("row", table("change", "backward", "forward"), ids=lambda row: row[0])
def test_changes_mean_what_the_table_says(row):
    what, backward, forward = row
    expected = [(backward == "yes", forward == "yes")]
    found = [changes(old, new) for old, new in PAIRS[what]]
    assert found
    assert [[(change.backward, change.forward) for change in each] for each in found] == [expected] * len(found)


def test_the_exit_codes_are_those_of_the_command(tmp_path):
    codes = {row[1].split(":")[0].split()[0]: int(row[0]) for row in table("exit code", "meaning")}
    old = tmp_path / "old.yaml"
    old.write_text(EXAMPLE)
    for verdict, (what, to) in {
        "full": ("status: active", "status: draft"),
        "backward": ("maxLength: 36", "maxLength: 37"),
        "forward": ("maxLength: 36", "maxLength: 35"),
        "breaking": ("name: total", "name: sum"),
    }.items():
        new = tmp_path / "new.yaml"
        new.write_text(EXAMPLE.replace(what, to))
        assert lakeproof("contract", "diff", str(old), str(new)).returncode == codes[verdict]
        pair = [parse_contract(path.read_bytes(), path.name) for path in (old, new)]
        assert compatibility(changes(*pair)) is Compatibility(verdict)


def test_the_command_prints_what_the_page_says():
    block = re.search(
        r"^```console\n\$ (lakeproof contract check .*?)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
    ).groups()
    program, *arguments = block[0].split()
    assert program == "lakeproof"
    assert lakeproof(*arguments).stdout == block[1]


def test_a_contract_is_changed_as_shown(tmp_path):
    (block,) = re.findall(r"^```console\n(\$ lakeproof contract apply .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    own = {"LAKE_HOME": str(tmp_path / "lake"), "LAKE_CONTRACTS": str(tmp_path)}

    def run(line):
        program, *arguments = shlex.split(line)
        command = [*forked(program), *arguments]
        done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    contract = tmp_path / "orders.yaml"
    contract.write_text(EXAMPLE)
    assert run("lakeproof contract apply orders --dry-run") == "orders: tables would be created by 1.0.0.\n"
    assert run("lakeproof contract apply orders") == "orders: tables created by 1.0.0.\n"
    changed = EXAMPLE.replace("version: 1.0.0", "version: 1.1.0").replace("decimal(12,2)", "decimal(16,2)")
    contract.write_text(changed + "      - {name: coupon, logicalType: string}\n")
    dry = run("lakeproof contract apply orders --dry-run")
    steps = re.findall(r"^\$ (.*?)\n((?:[^$].*\n)*)", block, re.MULTILINE)
    assert dry == steps[0][1].replace("1.1.0 applied", "1.1.0 would be applied")
    assert [run(command) for command, _ in steps] == [expected for _, expected in steps]
    assert run("lakeproof contract apply orders") == "orders: 1.1.0 is already applied.\n"


def test_a_contract_is_tried_as_shown(lake_settings, tmp_path):
    (block,) = re.findall(r"^```console\n\$ (lakeproof contract try .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    command, *printed = block.splitlines()
    lake = Lake(lake_settings, tmp_path, EXAMPLE)
    lake.apply()
    orders = [("web", 1.5), ("fax", 3), ("shop", 0), ("fax", "2"), ("web", 7)]
    record = {"ordered_at": "2026-11-21T12:30:00Z"}
    records = [
        record | {"order_id": f"a{number}", "channel": channel, "total": total}
        for number, (channel, total) in enumerate(orders)
    ]
    lake.land(json.dumps(records).encode())
    new = EXAMPLE.replace("version: 1.0.0", "version: 1.1.0").replace("{value: shop}", "{value: shop}, {value: fax}")
    (tmp_path / "new.yaml").write_text(new.replace("{minimum: 0}", "{exclusiveMinimum: 0}"))
    own = {"LAKE_HOME": str(lake.settings.home), "LAKE_CONTRACTS": str(lake.settings.contracts)}
    program, *arguments = shlex.split(command)
    done = subprocess.run(
        [*forked(program), *arguments],
        cwd=tmp_path,
        env=os.environ | own,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert [line.rstrip() for line in done.stdout.splitlines()] == printed
    assert f"\n| {done.returncode} | some would |\n" in PAGE


def test_a_contract_is_inferred_as_shown(tmp_path):
    (block,) = re.findall(r"^```console\n\$ cat sample.json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    sample, _, rest = block.partition("$ ")
    command, _, printed = rest.partition("\n")
    (tmp_path / "sample.json").write_text(sample)
    done = lakeproof(*shlex.split(command)[1:], cwd=tmp_path)
    assert done.stdout + done.stderr == printed
    assert lakeproof("contract", "check", cwd=tmp_path).returncode == 0


def test_a_mistake_is_shown_with_carets(tmp_path):
    (shown,) = re.findall(r"^```text\n(Error: .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "contracts").mkdir()
    wrong = EXAMPLE.replace("name: channel, logicalType: string", "name: channel, logicalType: strin")
    (tmp_path / "contracts" / "orders.yaml").write_text(wrong)
    assert lakeproof("contract", "check", cwd=tmp_path).stderr == shown


def test_a_field_is_derived_as_shown():
    document = yaml.safe_load(EXAMPLE)
    identity = {"name": "id", "logicalType": "integer", "required": True}
    document["schema"][0]["properties"] = [
        {key: value for key, value in each.items() if key != "primaryKey"}
        for each in [*document["schema"][0]["properties"], identity]
    ] + yaml.safe_load(DERIVED)
    contract = parse_contract(yaml.safe_dump(document).encode(), "x")
    assert (contract.primary_key, [field.name for field in contract.derived]) == (
        ("correlation_id",),
        ["correlation_id"],
    )
    values = [row[0] for row in table("value", "type", "content")]
    assert values == ["`correlationId(FIELD)`", "`schemaId`", "`ingestionTimestamp`"]
    assert [value.strip("`").partition("(")[0] for value in values] == list(DerivedFrom)


def test_fields_are_dropped_and_renamed_as_shown():
    document = yaml.safe_load(EXAMPLE)
    properties = document["schema"][0]["properties"]
    (index,) = [number for number, each in enumerate(properties) if each["name"] == "channel"]
    found = []
    for snippet in SNIPPETS:
        (properties[index],) = yaml.safe_load(snippet)
        found.append(parse_contract(yaml.safe_dump(document).encode(), "x").fields[index])
    dropped, renamed = found
    assert (dropped.name, dropped.dropped) == ("channel", True)
    assert (renamed.name, renamed.former_names) == ("sales_channel", ("channel",))


def test_the_limits_of_what_is_inferred_are_those_of_the_page():
    (row,) = [row for row in table("what", "how it is inferred") if row[0] == "`enum`"]
    assert row[1] == (
        f"at most {MAX_VALUES} different texts, each at least {MIN_FOR_EACH} times, in at least {MIN_FOR_ENUM} values"
    )


SAME_WORDS = {
    "optional field added, also within objects, items and values": ["optional field added"],
    "field removed": ["optional field removed", "required field removed"],
    "dropped field removed, former names changed": ["dropped field removed", "former names changed"],
    "any other type, also a narrower one":
        ["any other type", "long → int, double → float, a decimal with fewer digits and the same scale"],
    "required field added, optional → required": ["required field added", "optional → required"],
    "primary key, event time": ["primary key, event time, name of the stream"],
    "constraints, allowed values, rules, format of timestamps": [
        "format of timestamps: the offset became optional", "format of timestamps: the offset is no longer optional",
        "any other format or time zone of timestamps",
        "allowed values added, or none listed any more", "allowed values removed, or listed for the first time",
        "range or length loosened, pattern or rule removed", "range or length tightened, pattern or rule added",
        "pattern or rule changed"],
    "drift policy": [
        "drift policy: from freeze to another", "drift policy: from another to freeze",
        "drift policy: between rescue and discard"],
}  # fmt: skip


def test_tables_can_follow_what_is_listed_so():
    rows = table("change", "the tables")
    seen = []
    for change, means in rows:
        for name in SAME_WORDS.get(change, [change]):
            seen.append(name)
            for old, new in PAIRS[name]:
                obstacles = [found.obstacle for found in changes(old, new)]
                assert any(obstacles) == means.startswith("rejected"), (change, old, new)
    assert sorted(seen) == sorted(PAIRS)


DRIFT = table("changed or added")


@pytest.mark.parametrize("row", DRIFT, ids=lambda row: row[0])
def test_each_policy_does_what_the_table_says(row):
    freeze, rescue, discard = (parse_contract(under(policy).encode(), policy.value) for policy in DriftPolicy)
    record = changed_record(row[0])
    strict, kept, counted = (units_of(Judge(each).judge(record))[0] for each in (freeze, rescue, discard))
    assert (strict["reasons"] is None) == (row[1] == "no")
    assert reasons(strict) == row[1]
    for judged, cell in ((kept, row[2]), (counted, row[3])):
        assert (judged["reasons"] is not None) == (cell == "dead letter as with `freeze`")
        assert judged["reasons"] in (None, strict["reasons"])
    if kept["reasons"] is None:
        assert rescued((kept["_rescued"] or {}).items()) == row[2]
        assert counts(Counter(counted["_drift"] or ())) == row[3]


def under(policy):
    """Return the example with a drift policy."""
    event_time = "  - {property: eventTime, value: ordered_at}\n"
    return EXAMPLE.replace(event_time, f"{event_time}  - {{property: driftPolicy, value: {policy}}}\n")


def changed_record(change):
    """Return the page's record with a field changed or added, as in a cell of the table."""
    (text,) = re.findall(r"^Changes of the record `(.*?)`", PAGE, re.MULTILINE)
    tokens = dict(re.findall(r'"(\w+)": ("[^"]*"|[\d.]+)', text))
    if change != "nothing":
        inside = "{" + change.strip("`") + "}"
        for name, (start, end) in spans(inside).items():
            tokens[name] = inside[start:end]
    return ("{" + ", ".join(f'"{name}": {token}' for name, token in tokens.items()) + "}").encode()


def spans(text):
    """Return the begin and end of each value of a JSON object."""
    found, at = {}, 1
    while at < len(text) and text[at] != "}":
        name, end = json.JSONDecoder().raw_decode(text, text.index('"', at))
        start = end + 2
        _, at = json.JSONDecoder().raw_decode(text, start)
        found[name] = (start, at)
    return found


def reasons(row):
    return ", ".join(f"`{reason['code']} {reason['path']}`" for reason in row["reasons"] or ()) or "no"


def rescued(entries):
    return ", ".join(f"`{path}` → `{text}`" for path, text in entries or ()) or "null"


def counts(found):
    return ", ".join(f"{codes}: {count}" for codes, count in sorted(found.items())) or "nothing"


def lakeproof(*arguments: str, cwd: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*forked("lakeproof"), *arguments],
        cwd=cwd,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=60,
    )


def one(field: str, **more: object) -> object:
    """Return the example with another top-level field, given as YAML."""
    document = yaml.safe_load(EXAMPLE)
    document["schema"][0]["properties"].append({"name": "x", **yaml.safe_load(f"{{{field}}}"), **more})
    return parse_contract(yaml.safe_dump(document).encode(), "x")


def both(old: str, *new: str) -> list[tuple[object, object]]:
    return [(one(old), one(each)) for each in new]


BASE = parse_contract(EXAMPLE.encode(), "x")
TEXT, NEED = "logicalType: string", "logicalType: string, required: true"
KINDS = ("logicalType: integer", "logicalType: number")
NARROW = [
    f"{KINDS[0]}, physicalType: int",
    f"{KINDS[1]}, physicalType: float",
    f"{KINDS[1]}, physicalType: 'decimal(9,2)'",
]
WIDE = [
    f"{KINDS[0]}, physicalType: long",
    f"{KINDS[1]}, physicalType: double",
    f"{KINDS[1]}, physicalType: 'decimal(12,2)'",
]
OTHER_SCALE = f"{KINDS[1]}, physicalType: 'decimal(12,3)'"
LISTED, MORE = f"{TEXT}, enum: [{{value: a}}]", f"{TEXT}, enum: [{{value: a}}, {{value: b}}]"
RANGE, RANGED = (
    "logicalType: integer, logicalTypeOptions: {minimum: 1}",
    "logicalType: integer, logicalTypeOptions: {minimum: 2}",
)
LONG, SHORT = f"{TEXT}, logicalTypeOptions: {{maxLength: 9}}", f"{TEXT}, logicalTypeOptions: {{maxLength: 8}}"
FORM, OTHER_FORM = f"{TEXT}, logicalTypeOptions: {{pattern: a}}", f"{TEXT}, logicalTypeOptions: {{pattern: b}}"
LOCAL, OTHER_ZONE, OFFSET, ANY_OFFSET, EPOCH = (
    f"logicalType: timestamp, logicalTypeOptions: {{format: {form}}}"
    for form in (
        "yyyy-MM-dd HH:mm:ss, defaultTimezone: UTC",
        "yyyy-MM-dd HH:mm:ss, defaultTimezone: Europe/Berlin",
        "yyyy-MM-dd HH:mm:ssXXX",
        "'yyyy-MM-dd HH:mm:ss[XXX]', defaultTimezone: UTC",
        "epoch_ms",
    )
)
DEPRECATED = f"{TEXT}, deprecated: true"
DROPPED = f"{TEXT}, customProperties: [{{property: dropped, value: true}}]"
RENAMED = f"{TEXT}, customProperties: [{{property: renamedFrom, value: NAMES}}]"
RULE, OTHER_RULE = (f"{TEXT}, quality: [{{type: sql, name: r, query: x > '{end}'}}]" for end in "ab")
POLICIES = tuple(replace(BASE, drift=policy) for policy in (DriftPolicy.RESCUE, DriftPolicy.DISCARD))
SILVER = (Silver(timedelta(hours=12), SilverStrategy.MERGE), Silver(timedelta(days=7), SilverStrategy.STATE))
PAIRS = {
    "optional field added": [(BASE, one(TEXT))],
    "required field added": [(BASE, one(NEED))],
    "optional field removed": [(one(TEXT), BASE)],
    "required field removed": [(one(NEED), BASE)],
    "required → optional": both(NEED, TEXT),
    "optional → required": both(TEXT, NEED),
    "int → long, float → double, a decimal with more digits and the same scale":
        [pair for old, new in zip(NARROW, WIDE, strict=True) for pair in both(old, new)],
    "string → scalar": both(TEXT, f"{TEXT}, physicalType: scalar"),
    "long → int, double → float, a decimal with fewer digits and the same scale":
        [pair for old, new in zip(WIDE, NARROW, strict=True) for pair in both(old, new)],
    "any other type": both(TEXT, *KINDS, "logicalType: date") + both(NARROW[2], OTHER_SCALE),
    "allowed values added, or none listed any more": both(LISTED, MORE, TEXT),
    "allowed values removed, or listed for the first time": both(MORE, LISTED) + both(TEXT, LISTED),
    "range or length loosened, pattern or rule removed": both(RANGED, RANGE, KINDS[0]) + both(SHORT, LONG)
        + both(FORM, TEXT) + both(RULE, TEXT),
    "range or length tightened, pattern or rule added": both(RANGE, RANGED) + both(LONG, SHORT) + both(TEXT, FORM)
        + both(TEXT, RULE),
    "pattern or rule changed": both(FORM, OTHER_FORM) + both(RULE, OTHER_RULE),
    "primary key, event time, name of the stream": [
        (BASE, replace(BASE, primary_key=("channel",))),
        (BASE, replace(BASE, event_time="other")),
        (BASE, replace(BASE, stream="other")),
    ],
    "primary key added where there was none": [
        (replace(BASE, primary_key=(), silver=None), replace(BASE, silver=None)),
    ],
    "silver horizon, silver strategy, silver added or removed": [
        *((BASE, replace(BASE, silver=silver)) for silver in SILVER),
        (replace(BASE, silver=None), BASE),
        (BASE, replace(BASE, silver=None)),
    ],
    "format of timestamps: the offset became optional": both(LOCAL, ANY_OFFSET) + both(OFFSET, ANY_OFFSET),
    "format of timestamps: the offset is no longer optional": both(ANY_OFFSET, LOCAL, OFFSET),
    "any other format or time zone of timestamps": both(LOCAL, OTHER_ZONE, OFFSET, EPOCH)
        + both(OTHER_ZONE, ANY_OFFSET) + both("logicalType: timestamp", EPOCH, OFFSET),
    "drift policy: from freeze to another": [(BASE, policy) for policy in POLICIES],
    "drift policy: from another to freeze": [(policy, BASE) for policy in POLICIES],
    "drift policy: between rescue and discard": [POLICIES, POLICIES[::-1]],
    "field deprecated, or no longer deprecated": both(TEXT, DEPRECATED) + both(DEPRECATED, TEXT),
    "deprecated field dropped": [
        (one(DEPRECATED), one(text))
        for text in (f"{DEPRECATED}{DROPPED.removeprefix(TEXT)}", f"{DROPPED}, deprecated: true")
    ],
    "dropped field restored as optional": both(DROPPED, TEXT),
    "dropped field removed": [(one(DROPPED), BASE)],
    "field renamed": [(one(TEXT), one(f"name: y, {RENAMED.replace('NAMES', 'x')}"))],
    "former names changed": both(RENAMED.replace("NAMES", "y"), RENAMED.replace("NAMES", "[y, z]"), TEXT),
    "description": both(TEXT, f"{TEXT}, description: other") + both(RULE, RULE.replace("name", "description: d, name")),
}  # fmt: skip
