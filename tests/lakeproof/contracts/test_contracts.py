"""Valid contents of a contract, and error messages for its author."""

import hashlib
from dataclasses import astuple
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lakeproof.contracts import (
    Bound,
    Constraints,
    DecimalType,
    DriftPolicy,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
    Silver,
    SilverStrategy,
    load_contract,
    parse_contract,
)
from lakeproof.documents.names import OTHER_TABLES
from lakeproof.errors import UsageError
from lakeproof.tables.names import silver_tables, stream_tables

FOLDER = Path(__file__).parents[3] / "contracts"


def document(properties, **more):
    return {
        "apiVersion": "v3.2.0",
        "kind": "DataContract",
        "id": "x",
        "version": "2.1.0",
        "status": "active",
        "customProperties": [{"property": "eventTime", "value": "at"}],
        "schema": [{"name": "things", "logicalType": "object", "properties": properties}],
    } | more


KEY = {"name": "id", "logicalType": "string", "primaryKey": True}
AT = {"name": "at", "logicalType": "timestamp"}


def parse(*properties, **more):
    return parse_contract(yaml.safe_dump(document([KEY, AT, *properties], **more)).encode(), "things.yaml")


def type_of(**property_):
    return parse({"name": "f", **property_}).fields[2].type


def test_the_events_contract():
    contract = load_contract(FOLDER, "events")
    assert contract.digest == hashlib.sha256((FOLDER / "events.yaml").read_bytes()).hexdigest()
    assert (contract.stream, contract.version, contract.primary_key, contract.event_time) == (
        "events",
        "1.1.0",
        ("event_id",),
        "event_timestamp",
    )
    fields = {field.name: field for field in contract}
    assert {name for name, field in fields.items() if field.required} == {
        "user_id",
        "event_id",
        "event_timestamp",
        "event_type",
    }
    assert fields["event_type"].allowed == ("page_view", "purchase")
    assert fields["amount"].type == DecimalType(12, 2)
    assert fields["properties"].type == MapType(PrimitiveType.SCALAR)


@pytest.mark.parametrize(
    ("property_", "expected"),
    [
        ({"logicalType": "integer"}, PrimitiveType.LONG),
        ({"logicalType": "integer", "physicalType": "int"}, PrimitiveType.INT),
        ({"logicalType": "number"}, PrimitiveType.DOUBLE),
        ({"logicalType": "number", "physicalType": "decimal(38, 10)"}, DecimalType(38, 10)),
        ({"logicalType": "date"}, PrimitiveType.DATE),
        ({"logicalType": "array", "items": {"logicalType": "integer"}}, ListType(PrimitiveType.LONG)),
        ({"logicalType": "map", "map": {"key": {"logicalType": "string"}, "value": {"logicalType": "boolean"}}},
         MapType(PrimitiveType.BOOLEAN)),
    ],
)  # fmt: skip
def test_types(property_, expected):
    assert type_of(**property_) == expected


def test_an_object_within_an_array():
    inner = {"logicalType": "object", "properties": [{"name": "a", "logicalType": "string", "required": True}]}
    kind = type_of(logicalType="array", items=inner)
    assert isinstance(kind, ListType)
    assert isinstance(kind.item, ObjectType)
    assert kind.item.fields[0].required


EVENT_TIME = {"property": "eventTime", "value": "at"}


def policy(*values):
    return [EVENT_TIME, *({"property": "driftPolicy", "value": value} for value in values)]


def test_the_drift_policy():
    assert parse().drift is DriftPolicy.FREEZE
    for each in DriftPolicy:
        assert parse(customProperties=policy(each.value)).drift is each


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (["thaw"], r"^things.yaml:\d+:\d+: unknown driftPolicy 'thaw'."),
        (["Rescue"], "'Rescue'"),
        ([None], "unknown driftPolicy None"),
        ([["rescue"]], r"unknown driftPolicy \['rescue'\]"),
        (["rescue", "rescue"], r"^things.yaml:\d+:\d+: duplicate custom property driftPolicy"),
    ],
)
def test_no_such_drift_policy(values, says):
    with pytest.raises(UsageError, match=says) as caught:
        parse(customProperties=policy(*values))
    text = yaml.safe_dump(document([KEY, AT], customProperties=policy(*values))).splitlines()
    line = int(caught.value.message.split(":")[1])
    due = "value:" if len(values) == 1 else "- property: driftPolicy"
    assert due in text[line - 1]
    if len(values) == 1:
        assert "freeze, rescue, discard" in caught.value.hint


REQUIRED_KEY = KEY | {"required": True}
WEEK = timedelta(days=7)


def silver_of(*properties, **customs):
    """Return a contract's settings of silver, given fields besides the time, and custom properties."""
    asked = [{"property": name, "value": value} for name, value in customs.items()]
    text = yaml.safe_dump(document([*properties, AT], customProperties=[EVENT_TIME, *asked]))
    contract = parse_contract(text.encode(), "things.yaml")
    assert (contract.silver is None) == bool(contract.no_silver)
    return contract.silver or contract.no_silver


@pytest.mark.parametrize(
    ("customs", "expected"),
    [
        ({}, Silver(WEEK, SilverStrategy.MERGE)),
        ({"silverHorizon": "7 days"}, Silver(WEEK, SilverStrategy.MERGE)),
        ({"silverHorizon": "12 hours"}, Silver(timedelta(hours=12), SilverStrategy.MERGE)),
        ({"silverHorizon": "90 minutes", "silverStrategy": "state"},
         Silver(timedelta(minutes=90), SilverStrategy.STATE)),
        ({"silverHorizon": "unbounded", "silverStrategy": "merge"}, Silver(None, SilverStrategy.MERGE)),
        ({"silverStrategy": "state"}, Silver(WEEK, SilverStrategy.STATE)),
    ],
)  # fmt: skip
def test_how_records_become_silver(customs, expected):
    assert silver_of(REQUIRED_KEY, **customs) == expected


def test_a_stream_whose_records_have_no_key_has_no_silver():
    assert parse_contract(yaml.safe_dump(document([AT])).encode(), "x").primary_key == ()
    assert silver_of() == "it has no primary key"
    other = {"name": "f", "logicalType": "string", "primaryKey": True}
    assert silver_of(KEY) == "optional fields in its primary key: id"
    assert silver_of(REQUIRED_KEY, other) == "optional fields in its primary key: f"
    assert silver_of(KEY, other) == "optional fields in its primary key: id, f"
    assert silver_of(REQUIRED_KEY, other | {"required": True}) == Silver(WEEK, SilverStrategy.MERGE)


@pytest.mark.parametrize(
    ("key", "name", "value", "line", "says"),
    [
        (REQUIRED_KEY, "silverHorizon", "a week", "value: a week",
         "silverHorizon: expected a duration like 7 days, 12 hours or 90 minutes, or unbounded, got 'a week'."),
        (REQUIRED_KEY, "silverHorizon", "0 days", "value: 0 days", "silverHorizon: expected .*, got '0 days'."),
        (REQUIRED_KEY, "silverHorizon", 7, "value: 7", "silverHorizon: expected .*, got 7."),
        (REQUIRED_KEY, "silverHorizon", None, "value: null", "silverHorizon: expected .*, got None."),
        (REQUIRED_KEY, "silverStrategy", "Merge", "value: Merge", "unknown silverStrategy 'Merge'."),
        (REQUIRED_KEY, "silverStrategy", ["state"], "value:", r"unknown silverStrategy \['state'\]."),
        (REQUIRED_KEY, "silverStrategie", "state", "property: silverStrategie",
         "unknown custom property 'silverStrategie'; did you mean silverStrategy"),
        (AT | {"name": "id"}, "silverHorizon", "7 days", "- property: silverHorizon",
         "silverHorizon requires a primary key, but no property has primaryKey: true."),
        (AT | {"name": "id"}, "silverStrategy", "state", "- property: silverStrategy", "silverStrategy requires a"),
        (KEY, "silverHorizon", "7 days", "primaryKey: true",
         "id: silverHorizon requires that each field of the primary key is required, but this one is optional."),
    ],
)  # fmt: skip
def test_no_such_silver(key, name, value, line, says):
    with pytest.raises(UsageError, match=rf"^things.yaml:\d+:\d+: {says}") as caught:
        silver_of(key, **{name: value})
    asked = [EVENT_TIME, {"property": name, "value": value}]
    text = yaml.safe_dump(document([key, AT], customProperties=asked)).splitlines()
    assert line in text[int(caught.value.message.split(":")[1]) - 1]
    assert caught.value.hint


def options(logical, physical=None, **options):
    kept = {"physicalType": physical} if physical else {}
    return {"logicalType": logical, "logicalTypeOptions": options} | kept


@pytest.mark.parametrize(
    ("property_", "says"),
    [
        ({"logicalType": "string", "physicalType": "varchar(3)"}, r"f: unknown type 'varchar\(3\)' for a string"),
        ({"logicalType": "string", "physicalType": "int"}, "f: unknown type 'int' for a string"),
        ({"logicalType": "time"}, "f: unknown type 'time'"),
        ({}, "f: missing logicalType"),
        ({"logicalType": "number", "physicalType": "decimal(39, 1)"}, r"f: invalid type 'decimal\(39, 1\)'"),
        ({"logicalType": "number", "physicalType": "decimal(3, 4)"}, "invalid type"),
        ({"logicalType": "number", "physicalType": "decimal(0, 0)"}, "invalid type"),
        ({"logicalType": "array"}, "f: an array needs items"),
        (
            {"logicalType": "array", "items": {"logicalType": "string", "required": True}},
            "f: required is only supported",
        ),
        (
            {"logicalType": "array", "items": options("string", minLength=1)},
            "f: logicalTypeOptions is only supported",
        ),
        ({"logicalType": "map"}, "f: a map needs map.value"),
        (
            {"logicalType": "map", "map": {"key": {"logicalType": "integer"}, "value": {"logicalType": "integer"}}},
            "keys",
        ),
        ({"logicalType": "object"}, "f: missing properties"),
        ({"logicalType": "object", "properties": [dict(KEY)]}, "f.id: a field inside an object"),
        (
            {"logicalType": "object", "properties": [{"name": n, "logicalType": "string"} for n in "aA"]},
            "f.A: .* one column",
        ),
        (
            {"logicalType": "object", "properties": [{"name": n, "logicalType": "string"} for n in "xx"]},
            "f.x: the fields 'x' and 'x' would be one column",
        ),
        ({"logicalType": "object", "properties": dict(KEY)}, "f: properties: expected a list, got "),
        ({"logicalType": "array", "items": {"logicalType": "string"}, "primaryKey": True}, "f: only a scalar"),
        ({"name": "ID", "logicalType": "string"}, "ID: the fields 'id' and 'ID' would be one column"),
        ({"name": "at_day", "logicalType": "date"}, "at_day: the name 'at_day' is reserved"),
        ({"name": "a b", "logicalType": "string"}, "a b: 'a b' is not a valid name for a property"),
        ({"name": "1a", "logicalType": "string"}, "'1a'"),
        ({"name": "ä", "logicalType": "string"}, "'ä'"),
        ({"name": "_a", "logicalType": "string"}, "_a: '_a' is not a valid name for a property(.*\n)*.*start with _"),
        ({"name": 'a";drop', "logicalType": "string"}, "is not a valid name"),
        ({"logicalType": "string", "requird": True}, "f: unknown key 'requird'"),
        ({"logicalType": "string", "required": "perhaps"}, "f: required: expected true or false, got 'perhaps'"),
        ({"logicalType": "integer", "enum": [{"value": "one"}]}, "f: 'one' is not a value of the type long"),
        ({"logicalType": "number", "enum": [{"value": "01"}]}, "f: '01' is not a value of the type double"),
        ({"logicalType": "string", "enum": [{"value": None}]}, "f: 'null' is not a value of the type string"),
        ({"logicalType": "date", "enum": [{"value": "2026-02-30"}]}, "f: '2026-02-30' is not a value of the type date"),
        (options("string", format="email"), "f: 'format' is not a supported option of this type"),
        (options("string", minimum=1), "'minimum' is not a supported option"),
        (options("boolean", minimum=1), "'minimum' is not a supported option"),
        (options("array", minItems=1) | {"items": {"logicalType": "string"}}, "'minItems' is not a supported option"),
        (options("integer", multipleOf=2), "'multipleOf' is not a supported option"),
        (options("integer", minimum="x"), "f: minimum: expected a number .*, got 'x'"),
        (options("integer", minimum=True), "f: minimum: expected a number .*, got 'True'"),
        (options("integer", minimum=2**63), "minimum: expected a number .*, got '9223372036854775808'"),
        (options("integer", "int", exclusiveMinimum=2**31 - 1), "exclusiveMinimum: expected .*, got '2147483647'"),
        (options("number", maximum=float("inf")), "maximum: expected"),
        (options("number", maximum="1e400"), "maximum: expected .*, got '1e400'"),
        (options("number", maximum="1e999999999"), "maximum: expected .*, got '1e999999999'"),
        (options("number", minimum=1, exclusiveMinimum=1), "both minimum and exclusiveMinimum are set"),
        (options("number", minimum=2, maximum=1), "the range contains no value"),
        (options("number", minimum=1, exclusiveMaximum=1), "the range contains no value"),
        (options("timestamp", minimum="2026-11-21"), "minimum: expected a timestamp .*, got '2026-11-21'"),
        (options("timestamp", minimum="2026-11-21T12:00:00"), "expected a timestamp with a UTC offset"),
        (options("timestamp", minimum="2026-02-30T12:00:00Z"), "expected a timestamp with a UTC offset"),
        (options("timestamp", minimum="0001-01-01T00:00:00+01:00"), "expected a timestamp with a UTC offset"),
        (options("date", maximum="2026-11-21T12:00:00Z"), "expected a date"),
        (options("string", minLength=-1), "f: minLength: expected a number of characters, got -1"),
        (options("string", minLength="1"), "f: minLength: expected a number of characters, got '1'"),
        (options("string", minLength=True), "f: minLength: expected a number of characters, got True"),
        (options("string", maxLength=2**31), "f: maxLength: expected"),
        (options("string", minLength=2, maxLength=1), "minLength is greater than maxLength"),
        (options("string", pattern="("), r"f: invalid pattern '\(': unmatched \("),
        (options("string", pattern=1), "f: invalid pattern 1: expected a string"),
    ],
)
def test_refused_properties(property_, says):
    with pytest.raises(UsageError, match=rf"^things.yaml:\d+:\d+: .*{says}") as caught:
        parse({"name": "f", **property_})
    assert caught.value.hint


@pytest.mark.parametrize(
    ("kind", "asked", "expected"),
    [
        (("integer", "int"), {"minimum": 0, "maximum": 9}, Constraints(Bound(0), Bound(9))),
        (("integer",), {"exclusiveMinimum": 0, "exclusiveMaximum": 9}, Constraints(Bound(1), Bound(8))),
        (("integer",), {"minimum": 0.5, "maximum": -0.5 + 9}, Constraints(Bound(1), Bound(8))),
        (("integer",), {"exclusiveMinimum": 0.5, "exclusiveMaximum": 8.5}, Constraints(Bound(1), Bound(8))),
        (("integer",), {"maximum": 2**53 + 1}, Constraints(None, Bound(2**53 + 1))),
        (("number",), {"minimum": 0.1, "exclusiveMaximum": "1e2"}, Constraints(Bound(0.1), Bound(100.0, True))),
        (("number", "decimal(38,2)"), {"maximum": "12345678901234567890.12"},
         Constraints(None, Bound(Decimal("12345678901234567890.12")))),
        (("timestamp",), {"minimum": "2026-11-21T12:00+01:00"},
         Constraints(Bound(datetime(2026, 11, 21, 11, tzinfo=UTC)))),
        (("date",), {"exclusiveMaximum": "2026-11-21"}, Constraints(None, Bound(date(2026, 11, 21), True))),
        (("string",), {"minLength": 1, "maxLength": 2, "pattern": "^a"},
         Constraints(min_length=1, max_length=2, pattern="^a")),
        (("string", "scalar"), {"maxLength": 2}, Constraints(max_length=2)),
        (("string",), {}, Constraints()),
    ],
)  # fmt: skip
def test_constraints(kind, asked, expected):
    assert parse({"name": "f", **options(*kind, **asked)}).fields[2].constraints == expected


def test_numbers_and_times_are_read_as_written():
    """YAML would turn 12345678901234567.89 into a float, and a date into a time."""
    money = {"name": "f", **options("number", "decimal(38,2)", maximum="MOST")}
    at = AT | options("timestamp", minimum="FIRST")
    text = yaml.safe_dump(
        document([KEY, at, money, {"name": "g", "logicalType": "number", "enum": [{"value": "ONE"}]}])
    )
    for word, token in (("MOST", "12345678901234567.89"), ("FIRST", "2026-11-21T00:00:00Z"), ("ONE", "1.50")):
        text = text.replace(word, token)
    _, at, f, g = parse_contract(text.encode(), "things.yaml")
    assert f.constraints.maximum == Bound(Decimal("12345678901234567.89"))
    assert at.constraints.minimum == Bound(datetime(2026, 11, 21, tzinfo=UTC))
    assert g.allowed == ("1.50",)


def test_allowed_values_have_the_text_of_json():
    def allowed(logical, *values):
        enum = [{"value": value} for value in values]
        return parse({"name": "f", "logicalType": logical, "enum": enum}).fields[2].allowed

    assert allowed("boolean", True) == ("true",)
    assert allowed("integer", 1, "-2") == ("1", "-2")
    assert allowed("number", 1.5, "1e2") == ("1.5", "1e2")
    assert allowed("string", "a", 1) == ("a", "1")


def test_the_event_time_may_be_within_objects():
    inner = {"name": "event", "logicalType": "object", "properties": [{"name": "when", "logicalType": "timestamp"}]}
    custom = [{"property": "eventTime", "value": "event.when"}]
    assert parse(inner, customProperties=custom).event_time == "event.when"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"a: [", r"things.yaml:1:\d+: not valid YAML"),
        (b"a: 1\nb: 1\na: 2", r"things.yaml:3:\d+: not valid YAML.* duplicate key 'a'"),
        (b"a: &x 1\nb: *x", r"things.yaml:2:\d+: not valid YAML.* alias"),
        (b"a: &x [*x]", r"things.yaml:1:\d+: not valid YAML.* alias"),
        (b"", r"things.yaml:1:\d+: not a contract"),
        (b"[]", r"things.yaml:1:\d+: not a contract"),
        (b"just text", r"things.yaml:1:\d+: not a contract"),
        (b"\xff\xfe\x00", "things.yaml: expected UTF-8, got UTF-16"),
        ("ä: ä\n\nb: \x00".encode(), r"things.yaml:3:\d+: not valid YAML"),
        (b"a: 1\nb: \xe4", r"things.yaml:2:\d+: not valid YAML"),
        (b"a: !!timestamp foo", "things.yaml:1:4: not valid YAML: 'foo' is not a value of the type timestamp"),
        (b"a: !!bool foo", "things.yaml:1:4: not valid YAML: 'foo' is not a value of the type bool"),
        (b"a: !!int ''", "things.yaml:1:4: not valid YAML: '' is not a value of the type int"),
        (b"a: 1\nb: !!python/object:os.system {}", r"things.yaml:2:\d+: not valid YAML"),
        (b"a: 1\nb: " + b"1" * 5_000, r"things.yaml:2:\d+: not valid YAML"),
        (b"[" * 5000, r"things.yaml:1:\d+: not valid YAML"),
        (b"kind: DataContract\nversoin: 1", r"things.yaml:2:\d+: unknown key 'versoin'"),
        (yaml.safe_dump(document([KEY])).encode(), r"things.yaml:\d+:\d+: .* 'at', which is not a timestamp field"),
        (
            yaml.safe_dump(document([KEY, AT], customProperties=[])).encode(),
            r":\d+: missing custom property eventTime",
        ),
        (yaml.safe_dump(document([])).encode(), r"things.yaml:\d+:\d+: missing properties"),
        (yaml.safe_dump(document([KEY, AT], schema=[])).encode(), r"things.yaml:\d+:\d+: .*exactly one schema object"),
        (yaml.safe_dump(document([KEY, AT], version=None)).encode(), r"things.yaml:1:\d+: missing version"),
        (yaml.safe_dump(document([KEY, AT], kind="Other")).encode(), r"things.yaml:\d+:\d+: not a data contract"),
        (yaml.safe_dump(document([KEY, AT], apiVersion="v2.2.2")).encode(), "not a data contract of the .* v3"),
    ],
)
def test_refused_files(text, says):
    with pytest.raises(UsageError, match=says) as caught:
        parse_contract(text, "things.yaml")
    assert "\n" not in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("logicalType: timestamp", "logicalType: time", "event_timestamp: unknown type 'time'"),
        ("name: product_id", "name: USER_ID", "USER_ID: the fields 'user_id' and 'USER_ID'"),
        ("- value: purchase", "- valeu: purchase", "event_type: unknown key 'valeu'"),
        ("value: event_timestamp", "value: user_id", "the custom property eventTime is 'user_id'"),
        ("primaryKey: true", "primaryKey: perhaps", "event_id: primaryKey: "),
        ("physicalType: scalar", "physicalType: text", "properties: unknown type 'text'"),
        ("- name: events", "- name: _events", "'_events' is not a valid name for the schema object"),
    ],
)
def test_the_line_and_the_field_are_told(old, new, says):
    text = (FOLDER / "events.yaml").read_text().replace(old, new)
    line = text[: text.index(new)].count("\n") + 1
    with pytest.raises(UsageError, match=rf"^events.yaml:{line}:\d+: {says}"):
        parse_contract(text.encode(), "events.yaml")


def test_a_file_is_the_contract_of_its_name(tmp_path):
    (tmp_path / "things.yaml").write_bytes((FOLDER / "events.yaml").read_bytes())
    with pytest.raises(UsageError, match=r"things.yaml:\d+:\d+: the schema object is named 'events'"):
        load_contract(tmp_path, "things")


@pytest.mark.parametrize("ending", OTHER_TABLES)
def test_no_stream_has_the_name_of_a_table_of_another_one(tmp_path, ending):
    text = (FOLDER / "events.yaml").read_text()
    name = f"events{ending}"
    (tmp_path / f"{name}.yaml").write_text(text.replace("- name: events\n", f"- name: {name}\n"))
    assert load_contract(tmp_path, name).stream == name
    (tmp_path / "events.yaml").write_text(text)
    assert load_contract(tmp_path, "events").stream == "events"
    with pytest.raises(UsageError, match=f"cannot be named {name} beside a stream events") as caught:
        load_contract(tmp_path, name)
    assert "Rename" in caught.value.hint


def test_streams_differ_by_more_than_case(tmp_path):
    text = (FOLDER / "events.yaml").read_text()
    (tmp_path / "events.yaml").write_text(text)
    (tmp_path / "Events.yaml").write_text(text.replace("- name: events\n", "- name: Events\n"))
    for name, other in (("events", "Events"), ("Events", "events")):
        with pytest.raises(UsageError, match=f"cannot be named {name} beside a stream {other}"):
            load_contract(tmp_path, name)


def test_the_names_that_no_stream_may_have_are_those_of_its_tables():
    tables = [*astuple(stream_tables("x")), *astuple(silver_tables("x"))]
    assert {name.partition(".")[2] for name in tables} == {"x", *(f"x{ending}" for ending in OTHER_TABLES)}


@given(st.binary(max_size=200))
def test_no_bytes_cause_anything_but_a_usage_error(text):
    with pytest.raises(UsageError):
        parse_contract(text, "x.yaml")


def test_no_field_has_the_name_of_the_partition():
    day = {"name": "at_day", "logicalType": "date"}
    event = {"name": "event", "logicalType": "object", "properties": [dict(AT), day]}
    nested = {"customProperties": [{"property": "eventTime", "value": "event.at"}]}
    with pytest.raises(UsageError, match=r"event\.at_day: the name 'at_day' is reserved"):
        parse(event, **nested)
    with pytest.raises(UsageError, match="x: missing logicalType"):
        parse({"name": "x"}, customProperties=[{"property": "eventTime", "value": "y.x"}])
    assert len(parse(day | {"name": "AT_DAY"}, event).fields) == 4
    assert len(parse(day, event | {"properties": [dict(AT)]}, **nested).fields) == 4


def test_a_composite_key_keeps_its_order():
    contract = parse({"name": "f", "logicalType": "string", "primaryKey": True, "primaryKeyPosition": -1})
    assert contract.primary_key == ("f", "id")


def test_a_stream_without_a_contract_names_those_there_are(tmp_path):
    with pytest.raises(UsageError, match="No contract found for the stream 'evnts'") as caught:
        load_contract(FOLDER, "evnts")
    assert "events" in caught.value.hint
    with pytest.raises(UsageError):
        load_contract(tmp_path / "missing", "events")


def test_an_anomaly_of_a_sensor_is_data():
    [frequency] = [field for field in load_contract(FOLDER, "sensors") if field.name == "sensor_freq"]
    assert frequency.constraints == Constraints()


def test_the_id_of_the_clickstream_is_an_integer():
    [key] = [field for field in load_contract(FOLDER, "clickstream") if field.name == "id"]
    assert (key.type, key.required) == (PrimitiveType.LONG, True)
