"""The file of a product: valid contents, and error messages for its author."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lakeproof.gold.products import CONTRACT, PRODUCT, contract_of, product

from lakeproof.documents.source import RefusedError
from lakeproof.errors import UsageError
from lakeproof.gold.model import Aggregate, Publish, Sink, SinkKind, Window
from lakeproof.gold.product_file import load_product, load_products, parse_product, product_names


def test_a_product():
    made = product()
    assert (made.name, made.stream, made.description) == ("spending", "orders", "Who spends how much.")
    assert [key.name for key in made.keys] == ["customer"]
    assert made.window == Window(timedelta(hours=1), timedelta(minutes=15))
    assert [(measure.name, measure.aggregate) for measure in made.measures] == [
        ("orders", Aggregate.COUNT),
        ("spent", Aggregate.SUM),
        ("large", Aggregate.COUNT),
    ]
    assert (made.publish, made.sinks) == (Publish.UPDATES, (Sink(SinkKind.TABLE),))


def test_the_defaults():
    made = product("description: Who spends how much.\n", "")
    assert made.description == ""
    made = product("publish: updates\nsinks: [table]\n", "")
    assert (made.publish, made.sinks) == (Publish.UPDATES, (Sink(SinkKind.TABLE),))
    made = product("  every: 15 minutes\n", "")
    assert made.window == Window(timedelta(hours=1), timedelta(hours=1))
    assert product("publish: updates", "publish: final").publish is Publish.FINAL
    assert product("keys: [customer]", "keys: []").keys == ()


def test_sinks():
    made = product("sinks: [table]", "sinks: [table, kafka, {kafka: acme.spending}]")
    assert made.sinks == (
        Sink(SinkKind.TABLE),
        Sink(SinkKind.KAFKA, "gold.spending"),
        Sink(SinkKind.KAFKA, "acme.spending"),
    )
    final = PRODUCT.replace("publish: updates", "publish: final").replace("[table]", "[parquet, table]")
    made = parse_product(final.encode(), "gold/spending.yaml", "spending", contract_of())
    assert made.sinks == (Sink(SinkKind.PARQUET), Sink(SinkKind.TABLE))
    assert made.digest == product("publish: updates", "publish: final").digest  # the table is the same


def test_windows_are_never_final_without_a_horizon():
    unbounded = CONTRACT.replace("\nschema:", "\n  - {property: silverHorizon, value: unbounded}\nschema:")
    assert product(contract=unbounded).publish is Publish.UPDATES
    with pytest.raises(UsageError) as caught:
        product("publish: updates", "publish: final", unbounded)
    assert "spending.yaml:12:10: publish: windows are never final, because the silver hor" in str(caught.value)


SESSION = PRODUCT.replace("  size: 1 hour\n  every: 15 minutes\n", "  gap: 30 minutes\n")


def test_sessions():
    made = parse_product(SESSION.encode(), "gold/spending.yaml", "spending", contract_of())
    assert made.window == Window(timedelta(minutes=30), timedelta(minutes=30), session=True)
    fixed = SESSION.replace("gap", "size")
    assert made.digest != parse_product(fixed.encode(), "gold/spending.yaml", "spending", contract_of()).digest


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("publish: updates", "publish: final", "spending.yaml:11:10: publish: sessions cannot be final"),
        ("[table]", "[table, kafka]", "spending.yaml:12:16: sinks[1]: the sink kafka would keep sessions"),
        ("[table]", "[table, {kafka: x}]", "spending.yaml:12:16: sinks[1]: the sink kafka would keep sessions"),
    ],
)
def test_what_sessions_cannot_have(old, new, says):
    with pytest.raises(UsageError) as caught:
        parse_product(SESSION.replace(old, new).encode(), "gold/spending.yaml", "spending", contract_of())
    assert caught.value.message.startswith(f"gold/{says}")
    assert caught.value.hint


@pytest.mark.parametrize("key", ["customer, channel", "count", "total", "ordered_at"])
def test_keys_are_scalars(key):
    assert [field.name for field in product("[customer]", f"[{key}]").keys] == key.split(", ")


def test_a_key_inside_an_object_has_the_name_of_the_field():
    (key,) = product("[customer]", "[place.city]").keys
    assert (key.name, key.path, str(key)) == ("city", ("place", "city"), "place.city")
    assert product("[customer]", "[place.city]").digest != product().digest


def test_a_derived_field_can_be_a_key():
    derived = "{name: d, logicalType: string, customProperties: [{property: derived, value: correlationId(order_id)}]}"
    (key,) = product(
        "[customer]", "[d]", CONTRACT.replace("{name: customer", f"{derived}\n      - {{name: customer")
    ).keys
    assert key.name == "d"


MISTAKES = [
    ("name: spending", "name: 5", 1, "name: expected a string, got a number."),
    ("name: spending", "name: _spending", 1, "name: '_spending' is not a valid name for a product."),
    ("name: spending", "name: a b", 1, "name: 'a b' is not a valid name for a product."),
    ("name: spending\n", "", 1, "missing key name."),
    ("silver: orders", "silver: ordres", 2, "silver: No contract found for the stream 'ordres'."),
    ("silver: orders", "silver: ../orders", 2, "silver: '../orders' is not a valid name for a stream."),
    ("silver: orders", "silver: [orders]", 2, "silver: expected a string, got a list."),
    ("description: Who spends how much.", "description: {a: b}", 3,
     "description: expected a string, got keys and values."),
    ("description", "descripton", 3, "descripton: unknown key."),
    ("keys: [customer]", "keys: customer", 4, "keys: expected a list, got a string."),
    ("keys: [customer]", "keys:\n  - customer\n  - nobody", 6, "keys[1]: unknown field 'nobody'."),
    ("keys: [customer]", "keys: [Customer]", 4, "keys[0]: unknown field 'Customer'."),
    ("keys: [customer]", "keys: [place.town]", 4, "keys[0]: unknown field 'place.town'."),
    ("keys: [customer]", "keys: [customer.city]", 4, "keys[0]: unknown field 'customer.city'."),
    ("keys: [customer]", "keys: [place.]", 4, "keys[0]: unknown field 'place.'."),
    ("keys: [customer]", "keys: ['']", 4, "keys[0]: unknown field ''."),
    ("keys: [customer]", "keys: [place.city, City]", 4, "keys[1]: 'city' and 'City' would be one column"),
    ("keys: [customer]", "keys: [true]", 4, "keys[0]: expected a string, got a boolean."),
    ("keys: [customer]", "keys: [customer, customer]", 4, "keys[1]: 'customer' and 'customer' would be one column"),
    ("keys: [customer]", "keys: [window_start]", 4, "keys[0]: the name 'window_start' is reserved."),
    ("keys: [customer]", "keys: [place]", 4, "keys[0]: expected a scalar that is not a floating-point number, but place"
     " is object."),
    ("keys: [customer]", "keys: [tags]", 4, "but tags is array."),
    ("keys: [customer]", "keys: [ratio]", 4, "but ratio is double."),
    ("keys: [customer]", "keys: [part]", 4, "but part is float."),
    ("window:\n  size: 1 hour\n  every: 15 minutes", "window: 1 hour", 5,
     "window: expected keys and values, got a string."),
    ("  size: 1 hour\n", "", 5, "window: missing key size."),
    ("size: 1 hour", "sise: 1 hour", 6, "window.sise: unknown key."),
    ("size: 1 hour", "size: 1", 6, "window.size: expected a string, got a number."),
    ("size: 1 hour", "size: 1h", 6, "window.size: expected a duration like 7 days, 12 hours or 90 minutes, got '1h'."),
    ("every: 15 minutes", "every: 40 minutes", 7, "window.every: the size, 1 hour, is not a multiple of 40 minutes."),
    ("  size: 1 hour\n  every: 15 minutes", "  {}", 6, "window: missing key size."),
    ("every: 15 minutes", "gap: 15 minutes", 6, "window.size: sessions have no size"),
    ("size: 1 hour", "gap: 1 hour", 7, "window.every: sessions have no every"),
    ("size: 1 hour\n  every: 15 minutes", "gap: 1h", 6,
     "window.gap: expected a duration like 7 days, 12 hours or 90 minutes, got '1h'."),
    ("size: 1 hour\n  every: 15 minutes", "gap: 5", 6, "window.gap: expected a string, got a number."),
    ("size: 1 hour\n  every: 15 minutes", "Gap: 5 minutes", 6, "window.Gap: unknown key."),
    ("orders: count(*)", "orders: null", 9, "measures.orders: expected a string, got null."),
    ("orders: count(*)", "orders: 1", 9, "measures.orders: expected a string, got a number."),
    ("orders: count(*)", "1: count(*)", 8, "measures[1]: expected a string, got a number."),
    ("orders: count(*)", "orders: cuont(*)", 9, "measures.orders: invalid measure: unknown function cuont."),
    ("spent: sum(total)", "spent: sum(ratio)", 10,
     "measures.spent: invalid measure: SUM requires an integer or a decimal, but ratio is double."),
    ("spent: sum(total)", "spent: sum(amount)", 10, "measures.spent: invalid measure: unknown field amount."),
    ("spent:", "_spent:", 10, "measures._spent: '_spent' is not a valid name for a measure."),
    ("spent:", "Window_End:", 10, "measures.Window_End: the name 'Window_End' is reserved."),
    ("spent:", "window_start_day:", 10, "measures.window_start_day: the name 'window_start_day' is reserved."),
    ("spent:", "CUSTOMER:", 10, "measures.CUSTOMER: 'customer' and 'CUSTOMER' would be one column in SQL."),
    ("spent:", "Orders:", 10, "measures.Orders: 'orders' and 'Orders' would be one column in SQL."),
    ("spent:", "orders:", 10, "not valid YAML: duplicate key 'orders'."),
    ("publish: updates", "publish: sometimes", 12, "publish: expected one of updates, final, got 'sometimes'."),
    ("sinks: [table]", "sinks: [table, pigeon]", 13, "sinks[1]: unknown sink 'pigeon'."),
    ("sinks: [table]", "sinks: [{table: x}]", 13, "sinks[0]: unknown sink {'table': 'x'}."),
    ("sinks: [table]", "sinks: [table, {kafka: 'a b'}]", 13, "sinks[1].kafka: 'a b' is not the name of a Kafka topic."),
    ("sinks: [table]", "sinks: [table, parquet]", 13, "sinks[1]: the sink parquet has each window once"),
    ("sinks: [table]", "sinks: []", 13, "sinks: expected the sink table."),
    ("sinks: [table]", "sinks: [kafka]", 13, "sinks: expected the sink table."),
    ("sinks: [table]", "sinks: [table, table]", 13, "sinks[1]: duplicate sink."),
    ("sinks: [table]", "sinks: &a [table]\nmore: *a", 14, "not valid YAML: aliases"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "says"), MISTAKES, ids=[f"{new!r}"[:50] for _, new, *_ in MISTAKES])
def test_a_mistake_is_told_with_its_line_and_key(old, new, line, says):
    assert old in PRODUCT
    with pytest.raises(UsageError) as caught:
        parse_product(PRODUCT.replace(old, new, 1).encode(), "gold/spending.yaml", "spending", contract_of())
    assert caught.value.message.startswith(f"gold/spending.yaml:{line}:")
    assert says in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_all_mistakes_are_told_at_once():
    text = PRODUCT.replace("keys: [customer]", "keys: [nobody, part]").replace("1 hour", "1h").replace("sum(t", "sun(t")
    with pytest.raises(RefusedError) as caught:
        parse_product(text.encode(), "gold/spending.yaml", "spending", contract_of())
    assert [message.split(":")[1:3] for message, _, _ in caught.value.problems] == [
        ["4", "8"], ["4", "16"], ["6", "9"], ["10", "10"]]  # fmt: skip


@pytest.mark.parametrize(
    ("custom", "hint"),
    [
        ("property: renamedFrom, value: [who, client]", "Contract 1.0.0 of orders renames {}. Use customer."),
        ("property: dropped, value: true", "Contract 1.0.0 of orders drops {}. Remove it from the product."),
    ],
)
def test_a_field_that_was_renamed_or_dropped_is_told(custom, hint):
    contract = CONTRACT.replace("name: customer,", f"name: customer, customProperties: [{{{custom}}}],")
    name = "client" if "renamed" in custom else "customer"
    for old, new in (("[customer]", f"[{name}]"), ("sum(total)", f"min({name})"), ("(*)", f"(DISTINCT {name})")):
        with pytest.raises(UsageError, match=f"unknown field .*{name}") as caught:
            product(old, new, contract)
        hints = [each for _, _, each in caught.value.problems]
        assert hint.format(name) in hints


def test_there_are_measures():
    head = PRODUCT.partition("  orders:")[0]
    for text, says in (
        (head.replace("measures:", "measures: {}"), "measures: expected at least one measure."),
        (head, "measures: expected keys and values, got null."),
        (head.replace("measures:\n", ""), "missing key measures."),
    ):
        with pytest.raises(UsageError, match=says):
            parse_product(text.encode(), "x.yaml", "spending", contract_of())


@pytest.mark.parametrize("text", [b"", b"[]", b"spending", b"a: [", b"\xff\xfe\x00"])
def test_what_is_no_product(text):
    with pytest.raises(UsageError, match=r"^x.yaml:1:\d+: not ") as caught:
        parse_product(text, "x.yaml", "x", contract_of())
    assert caught.value.hint


@given(st.binary(max_size=200))
def test_no_bytes_cause_anything_but_a_usage_error(text):
    with pytest.raises(UsageError):
        parse_product(text, "x.yaml", "x", contract_of())


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("", "it has no primary key"),
        (", primaryKey: true", "optional fields in its primary key: order_id"),
    ],
)
def test_a_stream_without_silver_has_no_products(key, why):
    contract = CONTRACT.replace(", required: true, primaryKey: true", key)
    with pytest.raises(UsageError, match=rf"^gold/spending.yaml:2:\d+: silver: the stream orders has no silver: {why}"):
        product(contract=contract)


def test_a_product_has_the_name_of_its_file(tmp_path):
    (tmp_path / "spending.yaml").write_text(PRODUCT)
    (tmp_path / "other.yaml").write_text(PRODUCT)
    assert product_names(tmp_path) == ["other", "spending"]
    assert product_names(tmp_path / "missing") == []
    assert load_product(tmp_path, "spending", contract_of()) == product()
    with pytest.raises(UsageError, match=r"other.yaml:1:\d+: name: the product is named 'spending', but"):
        load_product(tmp_path, "other", contract_of())
    with pytest.raises(UsageError, match="No data product 'none' found at") as caught:
        load_product(tmp_path, "none", contract_of())
    assert "other, spending" in caught.value.hint


def test_only_the_products_of_some_streams_are_read(tmp_path):
    (tmp_path / "spending.yaml").write_text(PRODUCT)
    (tmp_path / "other.yaml").write_text("name: other\nsilver: without_contract\n")
    assert [found.name for found in load_products(tmp_path, ["orders", "returns"], contract_of())] == ["spending"]
    assert load_products(tmp_path, ["returns"], contract_of()) == []
    (tmp_path / "broken.yaml").write_text("name: broken\n")
    with pytest.raises(UsageError, match=r"broken\.yaml:1"):
        load_products(tmp_path, ["returns"], contract_of())
