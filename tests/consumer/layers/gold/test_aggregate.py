"""Gold equals the plain model, with crashes, other tools and changes in between."""

import random
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.consumer.lake import SessionOf, rows
from tests.consumer.layers.gold.lakes import (
    FINAL,
    NOON,
    SILVER,
    SLIDING,
    SPENDING,
    VISITS,
    Silver,
    check,
    fill,
    found,
    found_by_duckdb,
    gold_layer,
    order,
    orders_lake,
    write_product,
)
from tests.consumer.layers.gold.model import Order, Spec, windows
from tests.operations import tables
from tests.selection import grid, only_with_all

from consumer.iceberg import append
from consumer.layers import upstream
from consumer.layers.gold.table import ensure_gold_table, rebuild_gold_hint
from consumer.layers.rebuild import rebuild
from consumer.layers.upstream import rebuild_silver_hint
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.tables.names import PRODUCT
from lakeproof.tables.schemas import ensure_silver_tables

pytestmark = pytest.mark.spark

HOUR = timedelta(hours=1)
KINDS = {"tumbling": SPENDING, "sliding": SLIDING, "final": FINAL, "session": VISITS}


@pytest.fixture
def lake(lake_settings: Settings, tmp_path: Path) -> Settings:
    return orders_lake(lake_settings, tmp_path)


@pytest.fixture
def session(lake: Settings, session_of: SessionOf) -> SparkSession:
    return session_of(lake)


@pytest.fixture
def silver(session: SparkSession, lake: Settings) -> Silver:
    return Silver(session, lake)


def some(chance: random.Random, now: datetime) -> list[Order]:
    """Return orders around `now`, some much older, some without a time, a customer or a total."""
    back = (timedelta(0), 10 * timedelta(minutes=1), 3 * HOUR, timedelta(days=2), timedelta(days=6))
    return [
        order(
            chance.choice((None, *[now - chance.choice(back) * chance.random() for _ in range(9)])),
            chance.choice((None, "", "a", "b")),
            chance.choice((None, "0.00", "-1.50", "99999999.99", "2.00")),
            channel=chance.choice((None, "web", "shop")),
            count=chance.choice((None, 1, 2)),
            ratio=chance.choice((None, -1.5, 2.0)),
            **chance.choice(({"city": None}, {"city": "x"}, {"place": None})),
        )
        for _ in range(chance.randint(0, 12))
    ]


@grid(spec=KINDS, seed={"0": 0, "1": 1})
def test_random_orders_are_as_the_model_says(
    lake: Settings, session: SparkSession, silver: Silver, spec: Spec, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed == 0:  # all in tasks
        monkeypatch.setattr("consumer.iceberg.scan.SMALL_ROWS", 0)
    chance = random.Random(seed)
    now = NOON
    for _ in range(4):
        for _ in range(chance.randint(1, 2)):  # gold takes one or more commits of silver at once
            now += chance.choice((HOUR / 3, 5 * HOUR, timedelta(days=4)))
            silver.keep(*(some(chance, now) for _ in range(chance.randint(1, 3))))
        fill(session, lake, spec)
        model = check(lake, silver, spec)
        assert fill(session, lake, spec) == 0
    assert found_by_duckdb(lake, spec) == model


@pytest.mark.all
@grid(spec=KINDS)
def test_windows_are_the_same_whatever_the_number_of_tasks(
    monkeypatch: pytest.MonkeyPatch, lake: Settings, session: SparkSession, silver: Silver, spec: Spec
) -> None:
    """Rows are dealt to several tasks. If more windows are touched than a task may get, it computes all in between."""
    for module in ("columns", "touched", "tasks"):  # neither remembered nor computed by the driver
        monkeypatch.setattr(f"consumer.layers.gold.{module}.ROWS", 3)
    monkeypatch.setattr("consumer.layers.gold.tasks._ROWS_PER_TASK", 5)
    monkeypatch.setattr("consumer.layers.gold.touched._MAX_WINDOWS", 1)
    monkeypatch.setattr("consumer.layers.gold.sessions.MAX_SESSIONS", 1)
    chance = random.Random(7)
    for hours in range(3):
        silver.keep(*(some(chance, NOON + hours * HOUR) for _ in range(2)))
        fill(session, lake, spec)
    assert found_by_duckdb(lake, spec) == check(lake, silver, spec)


def test_an_order_that_comes_later_corrects_only_its_windows(
    lake: Settings, session: SparkSession, silver: Silver
) -> None:
    silver.keep([order(NOON - timedelta(days=day), customer) for day in range(6) for customer in (None, "a", "b")])
    fill(session, lake, SPENDING)
    before = {(row["window_start"], row["customer"]): row for row in rows(lake, "gold.spending")}
    silver.keep([order(NOON, "c")], [order(NOON - timedelta(days=3), None)])
    fill(session, lake, SPENDING)
    check(lake, silver, SPENDING)
    after = {(row["window_start"], row["customer"]): row for row in rows(lake, "gold.spending")}
    changed = {key for key, row in after.items() if before.get(key) != row}
    assert changed == {(NOON, "c"), (NOON - timedelta(days=3), None)}


def test_an_order_that_comes_later_joins_two_sessions(lake: Settings, session: SparkSession, silver: Silver) -> None:
    """One row is replaced by the longer session, the other one is removed, and no other row is touched."""
    minutes = timedelta(minutes=1)
    silver.keep([order(NOON + at * minutes, who) for who in ("a", "b", None) for at in (0, 20, 60, 80, 300)])
    fill(session, lake, VISITS)
    before = {(row["window_start"], row["customer"]): row for row in rows(lake, "gold.visits")}
    assert len(before) == 9
    silver.keep([order(NOON + 40 * minutes, "a", channel="late")])
    fill(session, lake, VISITS)
    check(lake, silver, VISITS)
    after = {(row["window_start"], row["customer"]): row for row in rows(lake, "gold.visits")}
    assert before.keys() - after.keys() == {(NOON + 60 * minutes, "a")}
    assert {key for key, row in after.items() if before.get(key) != row} == {(NOON, "a")}
    assert after[NOON, "a"]["window_end"] == NOON + 110 * minutes
    assert (after[NOON, "a"]["orders"], after[NOON, "a"]["arrived"]) == (5, "web")
    # A gap as long as the declared one ends a session; a microsecond less does not.
    silver.keep([order(NOON + 110 * minutes, "a"), order(NOON + 110 * minutes - timedelta(microseconds=1), "b")])
    fill(session, lake, VISITS)
    check(lake, silver, VISITS)
    starts = {(row["window_start"], row["customer"]) for row in rows(lake, "gold.visits")}
    assert starts == after.keys() | {(NOON + 110 * minutes, "a")}
    # An earlier order changes the start of the session, so its old row is removed.
    silver.keep([order(NOON - 29 * minutes, "a")])
    fill(session, lake, VISITS)
    check(lake, silver, VISITS)
    assert (NOON, "a") not in {(row["window_start"], row["customer"]) for row in rows(lake, "gold.visits")}


@pytest.mark.all
def test_a_changed_gap_is_refused_until_it_is_rebuilt(lake: Settings, session: SparkSession, silver: Silver) -> None:
    silver.keep([order(NOON), order(NOON + 2 * HOUR)])
    fill(session, lake, VISITS)
    other = replace(VISITS, text=VISITS.text.replace("30 minutes", "3 hours"), size=3 * HOUR)
    with pytest.raises(LakeproofError, match="other keys, windows or measures"):
        fill(session, lake, other)
    check(lake, silver, VISITS)
    rebuild(lake, gold_layer(lake, write_product(lake, other.text)), lambda: session)
    assert len(check(lake, silver, other)) == 1
    fixed = replace(SPENDING, text=VISITS.text.replace("gap: 30 minutes", "size: 30 minutes"))
    with pytest.raises(LakeproofError, match="other keys, windows or measures"):
        fill(session, lake, fixed)


@pytest.mark.all
def test_sessions_at_the_ends_of_the_calendar(lake: Settings, session: SparkSession, silver: Silver) -> None:
    """The last session ends after the last time of Python; a session of days reaches back over many partitions."""
    first, last = datetime.min.replace(tzinfo=NOON.tzinfo), datetime.max.replace(tzinfo=NOON.tzinfo)
    silver.keep([order(first), order(last), *(order(NOON + number * HOUR / 3) for number in range(200))])
    fill(session, lake, VISITS)
    silver.keep([order(first), order(last), order(NOON + 200 * HOUR / 3)])
    fill(session, lake, VISITS)
    by_spark = session.sql("SELECT orders FROM lake.gold.visits ORDER BY window_start").collect()
    assert [row.orders for row in by_spark] == [2, 201, 2]


def test_without_new_orders_only_the_marker_moves(lake: Settings, session: SparkSession, silver: Silver) -> None:
    silver.keep([order(NOON)])
    assert fill(session, lake, SPENDING) == 1
    silver.keep([], [])
    silver.keep([order(None)])
    assert fill(session, lake, SPENDING) == 1
    check(lake, silver, SPENDING)
    assert fill(session, lake, SPENDING) == 0


@pytest.mark.all
def test_what_silver_is_about_to_commit_is_not_counted(lake: Settings, session: SparkSession, silver: Silver) -> None:
    """Silver commits while gold computes: its new rows belong to windows that gold takes now, and later."""
    silver.keep([order(NOON)])
    fill(session, lake, SPENDING)
    silver.keep([order(NOON, total="2.00")])
    real = upstream.open_table

    def and_silver_goes_on(*arguments: Any) -> Any:
        opened = real(*arguments)
        if arguments[1] == SILVER.kept and silver.end == 2:
            silver.keep([order(NOON, total="3.00")])
        return opened

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upstream, "open_table", and_silver_goes_on)
        assert fill(session, lake, SPENDING) == 2
    check(lake, silver, SPENDING)


@grid(spec=KINDS, when=["before the commit", "after the commit"])
def test_a_micro_batch_that_crashed_is_tried_again(
    lake: Settings,
    session: SparkSession,
    silver: Silver,
    spec: Spec,
    when: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silver.keep([order(NOON), order(NOON, "b")])
    fill(session, lake, spec)
    silver.keep([order(NOON, total="5.00"), order(NOON + timedelta(days=8))])
    real = append._commit

    def crash(transaction: Any) -> None:
        monkeypatch.setattr(append, "_commit", real)
        if when == "after the commit":
            real(transaction)
        raise LakeproofError("crashed, as asked")

    monkeypatch.setattr(append, "_commit", crash)
    with pytest.raises(LakeproofError, match="as asked"):
        fill(session, lake, spec)
    silver.keep([order(NOON + timedelta(days=8), total="7.00")])
    fill(session, lake, spec)
    check(lake, silver, spec)


@pytest.mark.all
def test_maintenance_by_other_tools_changes_nothing(lake: Settings, session: SparkSession, silver: Silver) -> None:
    for number in range(3):
        silver.keep([order(NOON, "a"), order(NOON - number * HOUR, "b"), order(NOON, str(number))])
        fill(session, lake, SPENDING)
    for table in (SILVER.kept, "gold.spending"):
        tables.maintain(session, table)
    check(lake, silver, SPENDING)
    silver.keep([order(NOON, "a"), order(NOON, "1")])
    fill(session, lake, SPENDING)
    tables.expire_all_but_last(session, "gold.spending")
    silver.keep([order(NOON, "b")])
    fill(session, lake, SPENDING)
    model = check(lake, silver, SPENDING)
    assert found_by_duckdb(lake, SPENDING) == model


@pytest.mark.all
def test_files_without_rows_are_removed(lake: Settings, session: SparkSession, silver: Silver) -> None:
    for _ in range(5):
        silver.keep([order(NOON, "a"), order(NOON, "b")])
        fill(session, lake, SPENDING)
    check(lake, silver, SPENDING)
    assert session.table("lake.gold.spending.files").count() == 1  # data files and deletion vectors


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("keys: [customer, count]", "keys: [customer]"),
        only_with_all("size: 1 hour", "size: 2 hours"),
        only_with_all("sum(total)", "sum(total * 2)"),
        ("max(ordered_at)\n", "max(ordered_at)\npublish: final\n"),
    ],
)
def test_another_product_is_refused_until_it_is_rebuilt(
    lake: Settings, session: SparkSession, silver: Silver, old: str, new: str
) -> None:
    silver.keep([order(NOON), order(NOON + timedelta(days=9))])
    fill(session, lake, SPENDING)
    before = found(lake, SPENDING)
    assert old in SPENDING.text
    other = Spec(SPENDING.text.replace(old, new), SPENDING.keys, SPENDING.measures, HOUR, HOUR)
    with pytest.raises(LakeproofError, match="other keys, windows or measures") as refused:
        fill(session, lake, other)
    assert "Run `consumer rebuild gold spending`" in refused.value.hint
    tables.drop_properties(session, "gold.spending")
    with pytest.raises(LakeproofError, match="other keys, windows or measures"):
        fill(session, lake, other)
    assert found(lake, SPENDING) == before
    product = write_product(lake, other.text)
    done = rebuild(lake, gold_layer(lake, product), lambda: session)
    assert done.startswith("Rebuilt gold.spending from silver.orders.")
    assert fill(session, lake, other) == 0
    assert [name for _, name in open_catalog(lake).list_tables("gold")] == ["spending"]


@pytest.mark.all
def test_a_rebuilt_silver_is_refused_until_gold_is_rebuilt(
    lake: Settings, session: SparkSession, silver: Silver
) -> None:
    silver.keep([order(NOON), order(NOON, "b")])
    fill(session, lake, SPENDING)
    catalog = open_catalog(lake)
    catalog.drop_table(SILVER.kept)
    ensure_silver_tables(catalog, load_contract(lake.contracts, "orders"), SILVER)
    rebuilt = Silver(session, lake)
    rebuilt.keep([order(NOON, "b")])
    with pytest.raises(LakeproofError, match=r"filled from another silver\.orders") as refused:
        fill(session, lake, SPENDING)
    assert "Run `consumer rebuild gold spending`" in refused.value.hint
    rebuild(lake, gold_layer(lake, write_product(lake, SPENDING.text)), lambda: session)
    check(lake, rebuilt, SPENDING)
    rebuilt.keep([order(NOON, "b")])
    fill(session, lake, SPENDING)
    check(lake, rebuilt, SPENDING)


@pytest.mark.all
def test_a_rebuild_that_was_interrupted_is_begun_again(
    lake: Settings, session: SparkSession, silver: Silver, monkeypatch: pytest.MonkeyPatch
) -> None:
    silver.keep([order(NOON)])
    fill(session, lake, SPENDING)
    product = write_product(lake, SPENDING.text)
    with monkeypatch.context() as patch:
        patch.setattr(append, "_commit", lambda _: (_ for _ in ()).throw(LakeproofError("crashed, as asked")))
        with pytest.raises(LakeproofError, match="as asked"):
            rebuild(lake, gold_layer(lake, product), lambda: session)
    silver.keep([order(NOON, "b")])
    rebuild(lake, gold_layer(lake, product), lambda: session)
    check(lake, silver, SPENDING)
    assert [name for _, name in open_catalog(lake).list_tables("gold")] == ["spending"]


def test_gold_cannot_be_rebuilt_before_there_is_silver(lake: Settings) -> None:
    open_catalog(lake).drop_table(SILVER.kept)
    with pytest.raises(UsageError, match=r"silver\.orders does not exist yet"):
        rebuild(lake, gold_layer(lake, write_product(lake, SPENDING.text)), lambda: pytest.fail("no session is needed"))


@pytest.mark.all
def test_a_table_that_was_rolled_back_is_refused(lake: Settings, session: SparkSession, silver: Silver) -> None:
    for number in range(2):
        silver.keep([order(NOON, str(number))])
        fill(session, lake, SPENDING)
    tables.roll_back(session, "gold.spending")
    silver.keep([order(NOON)])
    product = write_product(lake, SPENDING.text)

    def start() -> None:
        ensure_gold_table(session, product, "gold.spending")
        fill(session, lake, SPENDING)

    for lost in (False, True):  # also if the table does not record its product any more
        if lost:
            session.sql(f"ALTER TABLE lake.gold.spending UNSET TBLPROPERTIES ('{PRODUCT}')")
        with pytest.raises(LakeproofError, match="rolled back or replaced") as refused:
            start()
        assert refused.value.hint == rebuild_gold_hint("spending")


@pytest.mark.all
def test_a_silver_that_was_rolled_back_is_refused_with_the_remedy_of_silver(
    lake: Settings, session: SparkSession, silver: Silver
) -> None:
    for number in range(2):
        silver.keep([order(NOON, str(number))])
        fill(session, lake, SPENDING)
    tables.roll_back(session, SILVER.kept)
    with pytest.raises(LakeproofError, match="rolled back or replaced") as refused:
        fill(session, lake, SPENDING)
    assert refused.value.hint == rebuild_silver_hint("orders")


def test_a_final_window_is_published_when_nothing_more_can_come(
    lake: Settings, session: SparkSession, silver: Silver
) -> None:
    silver.keep([order(NOON), order(NOON + 2 * HOUR)])
    fill(session, lake, FINAL)
    assert found(lake, FINAL) == []  # the horizon is days earlier
    silver.keep([order(NOON + timedelta(days=7) + HOUR)])
    assert fill(session, lake, FINAL) == 1
    assert [row[0] for row in check(lake, silver, FINAL)] == [NOON]
    silver.keep([order(NOON + HOUR), order(NOON + timedelta(days=7) + HOUR)])
    assert fill(session, lake, FINAL) == 0  # no window has ended since
    silver.keep([order(NOON + timedelta(days=30))])
    assert fill(session, lake, FINAL) == 1
    assert [row[0] for row in check(lake, silver, FINAL)][:3] == [NOON, NOON + HOUR, NOON + 2 * HOUR]
    snapshots = session.table("lake.gold.closed.snapshots").collect()
    assert {snapshot.operation for snapshot in snapshots} == {"append"}


@pytest.mark.all
def test_times_at_the_ends_of_the_calendar_and_before_1970(
    lake: Settings, session: SparkSession, silver: Silver
) -> None:
    """The table has windows outside of Python's range of times, so Spark counts them."""
    first, last = datetime.min.replace(tzinfo=NOON.tzinfo), datetime.max.replace(tzinfo=NOON.tzinfo)
    epoch = datetime(1970, 1, 1, tzinfo=NOON.tzinfo)
    microsecond = timedelta(microseconds=1)
    silver.keep([order(first), order(last), order(epoch - microsecond), order(epoch)])
    for spec in (SPENDING, SLIDING):
        fill(session, lake, spec)
    check_spark = session.sql("SELECT sum(orders) AS n FROM lake.gold.sliding").collect()[0].n
    assert check_spark == 4 * 8
    silver.keep([order(first), order(last), order(epoch - microsecond), order(epoch)])
    for spec in (SPENDING, SLIDING):
        fill(session, lake, spec)
    assert session.sql("SELECT sum(orders) AS n FROM lake.gold.sliding").collect()[0].n == 8 * 8
    near = [made for made in silver.orders if made["ordered_at"].year == 1969 or made["ordered_at"].year == 1970]
    model = windows(near, SPENDING)
    assert [row[:2] for row in model] == [(epoch - HOUR, epoch), (epoch, epoch + HOUR)]
    by_spark = session.sql(
        "SELECT unix_micros(window_start) AS at, orders FROM lake.gold.spending ORDER BY 1"
    ).collect()
    assert [row.orders for row in by_spark] == [2, 2, 2, 2]
    assert [row.at for row in by_spark][1:3] == [-3_600_000_000, 0]


def test_a_type_that_was_widened_is_followed(lake: Settings, session: SparkSession, silver: Silver) -> None:
    silver.keep([order(NOON)])
    fill(session, lake, SPENDING)
    path = lake.contracts / "orders.yaml"
    text = path.read_text()
    wider = text.replace("'decimal(10,2)'", "'decimal(12,2)'").replace("physicalType: int", "physicalType: long")
    assert wider != text
    path.write_text(wider)
    contract = load_contract(lake.contracts, "orders")
    ensure_silver_tables(open_catalog(lake), contract, SILVER)
    ContractLog(lake.state.database).make_current("orders", contract.digest, wider.encode())
    grown = Silver(session, lake)
    grown.end, grown.orders, grown.watermark = silver.end, silver.orders, silver.watermark
    grown.keep([order(NOON, total="9999999999.99", count=2**40), order(NOON)])
    fill(session, lake, SPENDING)
    check(lake, grown, SPENDING)
