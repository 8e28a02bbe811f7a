"""Unsupported features of ODCS are rejected."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from lakeproof.contracts import parse_contract
from lakeproof.contracts.read.odcs import unjudged
from lakeproof.errors import UsageError

EVENTS = (Path(__file__).parents[4] / "contracts" / "events.yaml").read_bytes()


@pytest.mark.parametrize(
    ("changed", "into", "message"),
    [
        (
            b"logicalType: map\n",
            b"logicalType: map\n        enum: [{value: a}]\n",
            r"events.yaml:\d+:\d+: properties: only a scalar can have an enum",
        ),
    ],
)
def test_refused(changed: bytes, into: bytes, message: str) -> None:
    text = EVENTS.replace(changed, into)
    assert text != EVENTS
    with pytest.raises(UsageError, match=message):
        parse_contract(text, "events.yaml")


def test_what_is_not_judged_is_told_with_its_line():
    assert unjudged(EVENTS, "events.yaml") == []
    text = EVENTS.replace(
        b"name: product_id\n",
        b"name: product_id\n        unique: true\n        quality:\n"
        b"          - {type: text, description: for people}\n          - {metric: nullValues, mustBe: 0}\n"
        b"        relationships: [{to: products.id}]\n",
    ).replace(b"name: user_id\n", b"name: user_id\n        unique: false\n")
    parse_contract(text, "events.yaml")
    first = text[: text.index(b"unique: true")].count(b"\n") + 1
    assert unjudged(text, "events.yaml") == [
        f"events.yaml:{first}: product_id: unique is not checked.",
        f"events.yaml:{first + 3}: product_id: quality of the type library is not checked.",
        f"events.yaml:{first + 4}: product_id: relationships is not checked.",
    ]


def test_integers_that_yaml_reads_as_others_are_told():
    line = EVENTS[: EVENTS.index(b"name: product_id")].count(b"\n") + 2
    enum = b"        enum: [010, 1_000, 0x1F, 1:30, 10, '010']\n"
    text = EVENTS.replace(b"name: product_id\n", b"name: product_id\n" + enum)
    assert unjudged(text, "events.yaml") == [
        f"events.yaml:{line}: product_id: {written} is read as the integer {value}; as text, it needs quotes."
        for written, value in (("010", 8), ("1_000", 1000), ("0x1F", 31), ("1:30", 90))
    ]


def told(keys: str) -> list[str]:
    """Return the warnings about keys of the field product_id, without their lines."""
    text = EVENTS.replace(b"name: product_id\n", f"name: product_id\n        {keys}\n".encode())
    assert text != EVENTS
    parse_contract(text, "events.yaml")
    return [line.partition(": ")[2] for line in unjudged(text, "events.yaml")]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("primaryKeyPosition: 2", ["primaryKeyPosition is ignored without primaryKey: true."]),
        (
            "primaryKeyPosition: 1\n        primaryKey: true",
            ["primaryKeyPosition 1 is duplicate; the order in the file decides."],
        ),
        ("primaryKeyPosition: 2\n        primaryKey: true", []),
        ("primaryKeyPosition: -1", []),
    ],
)
def test_positions_in_the_key_that_are_not_used_are_told(keys: str, says: list[str]) -> None:
    assert told(keys) == [f"product_id: {each}" for each in says]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (
            "physicalType: scalar\n        enum: [yes, {value: Off}, true, False, 'no']",
            [
                f"{text} is read as {value}; as text, it needs quotes."
                for text, value in (("yes", "true"), ("Off", "false"))
            ],
        ),
        ("enum: []", ["the enum is empty, so every value is allowed."]),
    ],
)
def test_allowed_values_that_are_read_otherwise_are_told(keys: str, says: list[str]) -> None:
    assert told(keys) == [f"product_id: {each}" for each in says]


def test_limits_of_the_keys_of_a_map_are_told() -> None:
    limits = (
        "            required: true\n            enum: [a]\n            logicalTypeOptions: {pattern: ^a}\n"
        "            deprecated: false\n"
    )
    text = EVENTS.replace(b"          value:\n", limits.encode() + b"          value:\n")
    parse_contract(text, "events.yaml")
    assert [line.partition(": ")[2] for line in unjudged(text, "events.yaml")] == [
        f"properties: {key} is not checked for the keys of a map." for key in ("required", "enum", "logicalTypeOptions")
    ]


@pytest.mark.parametrize("value", ["{1: low, 2: high}", "{yes: 1}", "{<<: {a: b}}", "{2026-01-01: x}"])
def test_values_of_other_tools_may_have_any_keys(value: str) -> None:
    text = EVENTS.replace(
        b"customProperties:\n", f"customProperties:\n  - {{property: acme.levels, value: {value}}}\n".encode()
    )
    parse_contract(text, "events.yaml")
    assert unjudged(text, "events.yaml") == []


def with_custom(name: str) -> bytes:
    return EVENTS.replace(
        b"customProperties:\n", f"customProperties:\n  - {{property: {name}, value: rescue}}\n".encode()
    )


@pytest.mark.parametrize(
    "name", ["driftpolicy", "drift_policy", "drift-policy", "DriftPolicy", "driftPolcy", "evenTime"]
)
def test_a_misspelt_custom_property_is_refused(name: str) -> None:
    text = with_custom(name)
    line = text[: text.index(name.encode())].count(b"\n") + 1
    meant = "eventTime" if name == "evenTime" else "driftPolicy"
    with pytest.raises(UsageError, match=rf"events.yaml:{line}:\d+: unknown custom property '{name}'; .* {meant}"):
        parse_contract(text, "events.yaml")


@pytest.mark.parametrize("name", ["acme.driftpolicy", "acme:driftPolicy", "dataSteward", "policy", "eventCount"])
def test_custom_properties_of_others_are_let_be(name: str) -> None:
    assert parse_contract(with_custom(name), "events.yaml") == replace(
        parse_contract(EVENTS, "events.yaml"), digest=hashlib.sha256(with_custom(name)).hexdigest()
    )


def test_our_custom_properties_are_at_the_top_only_and_once() -> None:
    inner = EVENTS.replace(
        b"  - name: events\n", b"  - name: events\n    customProperties: [{property: driftPolicy, value: rescue}]\n"
    )
    with pytest.raises(UsageError, match="driftPolicy has no effect here"):
        parse_contract(inner, "events.yaml")
    with pytest.raises(UsageError, match="duplicate custom property eventTime"):
        parse_contract(with_custom("eventTime"), "events.yaml")
