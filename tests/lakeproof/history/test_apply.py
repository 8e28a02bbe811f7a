"""A stream's tables follow its contract: changes made, changes rejected, and changes left after a crash."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.types import LongType
from tests.evolving import AT, V1, V2, write_contract
from tests.lakes import embedded, undone
from tests.selection import first_by_default, only_with_all

from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.history import applied, apply
from lakeproof.history.applied import AppliedMeanwhileError, applied_contracts, record
from lakeproof.history.apply import adopt, carry_out, plan
from lakeproof.references import newest_metadata, swap_metadata
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.tables import evolution
from lakeproof.tables.names import RENAMED, silver_tables
from lakeproof.tables.schemas import bronze_schema, ensure_silver_tables, ensure_tables
from reader.connect import connect

COUNT = V1[0]
NOTE = "{name: note, logicalType: string}"


class Lake:
    """A lake of the stream orders."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.catalog = open_catalog(settings)
        self.log = ContractLog(settings.state.database)

    def start(self) -> None:
        """Do what a consumer does when it starts."""
        adopt(self.catalog, self.settings, "orders", self.log)

    def apply(self) -> None:
        """Run ``lakeproof contract apply orders``."""
        carry_out(self.catalog, plan(self.catalog, self.settings, "orders"), self.log)

    def table(self, name: str = "bronze.orders") -> Table:
        return self.catalog.load_table(name)

    def versions(self) -> list[str]:
        """Return the applied versions, the newest last."""
        return [each.version for each in applied_contracts(self.catalog, "orders")]

    def current(self) -> str:
        """Return the version of the contract in effect for a running consumer."""
        digest = self.log.current("orders")
        return next(each.version for each in applied_contracts(self.catalog, "orders") if each.digest == digest)


@pytest.fixture(params=["lake_settings", only_with_all("s3_lake_settings", marks=[pytest.mark.s3])])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    found: Settings = request.getfixturevalue(request.param)
    return found.model_copy(update={"contracts": tmp_path / "contracts"})


@pytest.fixture(scope="module")
def lasting_lake(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("apply")
    made = Lake(embedded(folder / "lake").model_copy(update={"contracts": folder / "contracts"}))
    write_contract(made.settings, "1.0.0")
    made.start()
    return made.settings


@pytest.fixture
def lake(lasting_lake: Settings, tmp_path: Path) -> Iterator[Lake]:
    """A lake with the tables of version 1.0.0."""
    with undone(lasting_lake):
        made = Lake(lasting_lake.model_copy(update={"contracts": tmp_path / "contracts"}))
        write_contract(made.settings, "1.0.0")
        yield made


def ids(schema: Schema) -> dict[str, int]:
    return {path: schema.find_field(path).field_id for path in schema.column_names}


def test_all_that_is_allowed_at_once_in_one_commit(settings: Settings) -> None:
    lake = Lake(settings)
    write_contract(settings, "1.0.0")
    lake.start()
    before = lake.table()
    write_contract(settings, "1.1.0", V2)
    began = datetime.now(UTC)
    lake.apply()
    after = lake.table()
    assert len(after.metadata.schemas) == 2
    renamed = {path.replace("nick", "alias"): number for path, number in ids(before.schema()).items()}
    assert renamed.items() <= ids(after.schema()).items()
    due = bronze_schema(plan(lake.catalog, settings, "orders").contract)
    assert {field.name: field.type for field in after.schema().as_arrow()} == {
        field.name: field.type for field in due.as_arrow()
    }
    assert [field.name for field in after.schema().fields][-10:-5] == ["numbers", "alias", "code", "note", "_source"]
    assert after.schema().find_field("note").doc == "What was said."
    assert not after.schema().find_field("count").doc  # as before
    assert after.schema().find_field("code").doc == "Dropped: null in new rows."
    assert json.loads(after.properties[RENAMED]) == {"nick": "alias"}

    first, second = sorted(
        lake.table("ops.schema_changes").scan().to_arrow().to_pylist(), key=lambda row: row["number"]
    )
    assert (first["stream"], first["from_version"], first["from_digest"]) == ("orders", None, None)
    assert (first["to_version"], first["changes"]) == ("1.0.0", [])
    assert (second["from_version"], second["to_version"]) == ("1.0.0", "1.1.0")
    assert second["from_digest"] == first["to_digest"]
    assert set(second["changes"]) >= {
        "note: optional field added",
        "count: type widened: int → long",
        "count: required → optional",
        "total: type widened: decimal(9,2) → decimal(20,2)",
        "lines[].b: optional field added",
        "numbers[]: type widened: int → long",
        "alias: renamed from nick",
        "code: optional field dropped",
        "place.gone: optional field dropped",
    }
    assert second["contract"].encode() == (settings.contracts / "orders.yaml").read_bytes()
    assert began <= second["applied_at"] <= datetime.now(UTC)
    assert lake.current() == "1.1.0"

    lake.apply()
    lake.start()
    assert plan(lake.catalog, settings, "orders").is_applied
    assert (lake.versions(), len(lake.table().metadata.schemas)) == (["1.0.0", "1.1.0"], 2)


@pytest.mark.parametrize("name", ["bronze.orders", "ops.schema_changes"])
def test_a_table_that_another_tool_has_upgraded_is_no_outage(lake: Lake, name: str) -> None:
    at, metadata = newest_metadata(lake.catalog, name)
    assert swap_metadata(lake.catalog, name, at, metadata | {"format-version": 3, "next-row-id": 0})
    lake.start()
    write_contract(lake.settings, "1.1.0", V2)
    with pytest.raises(UsageError, match=f"Cannot change {name}: .* format version 3") as caught, catalog_errors():
        lake.apply()
    assert "Keep the table" in caught.value.hint


def test_before_there_are_tables_it_makes_them(lake_settings: Settings, tmp_path: Path) -> None:
    lake = Lake(lake_settings.model_copy(update={"contracts": tmp_path / "contracts"}))
    write_contract(lake.settings, "1.0.0")
    assert plan(lake.catalog, lake.settings, "orders").creates
    assert not lake.catalog.table_exists("bronze.orders")
    lake.apply()
    assert (lake.versions(), lake.current()) == (["1.0.0"], "1.0.0")


@pytest.mark.parametrize("taken", ["orders", "orders_late"])
def test_a_new_stream_cannot_have_tables_of_another_one(lake_settings: Settings, tmp_path: Path, taken: str) -> None:
    lake = Lake(lake_settings.model_copy(update={"contracts": tmp_path / "contracts"}))
    write_contract(lake.settings, "1.0.0")
    path = lake.settings.contracts / "orders.yaml"
    text = path.read_text()
    path.unlink()
    path.with_stem(taken).write_text(text.replace("name: orders", f"name: {taken}"))
    adopt(lake.catalog, lake.settings, taken, lake.log)
    path.with_stem(taken).unlink()
    (new,) = {"orders", "orders_late"} - {taken}
    path.with_stem(new).write_text(text.replace("name: orders", f"name: {new}"))
    with pytest.raises(UsageError, match=f"{new} cannot be created beside the stream {taken}") as caught:
        plan(lake.catalog, lake.settings, new)
    assert str(path.with_stem(new)) in caught.value.hint


REFUSED: dict[str, list[str]] = {
    "count: required field removed (its column stays: deprecate the field, then drop it)": V1[1:],
    "ratio: optional field removed (its column stays: deprecate the field, then drop it)": (
        [V1[0], "{name: quotient, logicalType: number, physicalType: float}", *V1[2:]]),
    "count: type changed: int → string (existing rows have int, which can only be widened)": (
        [COUNT.replace("integer, physicalType: int", "string"), *V1[1:]]),
    "total: type narrowed: decimal(9,2) → decimal(8,2) (existing rows have decimal(9,2), which can only be widened)": (
        [*V1[:2], V1[2].replace("9,2", "8,2"), *V1[3:]]),
    "note: required field added (existing rows may not have it)": (
        [*V1, NOTE.replace("}", ", required: true}")]),
    "ratio: optional → required (existing rows may not have it)": (
        [COUNT, V1[1].replace("}", ", required: true}"), *V1[2:]]),
    "place.a: type changed: int → date (existing rows have int, which can only be widened)": (
        [*V1[:3], V1[3].replace("integer, physicalType: int", "date"), *V1[4:]]),
    "lines[].a: optional field removed (its column stays: deprecate the field, then drop it)": (
        [*V1[:4], V1[4].replace("name: a", "name: c"), *V1[5:]]),
    "nick: optional field dropped (deprecate it first, and drop it in the next version)": (
        [*V1[:-2], "{name: nick, logicalType: string, customProperties: [{property: dropped, value: true}]}", V1[-1]]),
    "primary key id → id, count: other identities (existing rows are identified by the old one)": (
        [COUNT.replace("}", ", primaryKey: true}"), *V1[1:]]),
}  # fmt: skip


@pytest.mark.parametrize(("reason", "fields"), REFUSED.items(), ids=REFUSED.keys())
def test_what_is_refused_is_told_with_its_reason(lake: Lake, reason: str, fields: list[str]) -> None:
    write_contract(lake.settings, "2.0.0", fields)
    before = lake.table().metadata
    for attempt in (lake.apply, lake.start):
        with pytest.raises(UsageError) as caught:
            attempt()
        assert "from contract 1.0.0 to 2.0.0" in caught.value.message
        assert reason in caught.value.message
        assert "\n" not in caught.value.message
    assert (lake.table().metadata, lake.versions(), lake.current()) == (before, ["1.0.0"], "1.0.0")


def test_another_event_time_is_refused(lake: Lake) -> None:
    later = "{name: later, logicalType: timestamp}"
    write_contract(lake.settings, "1.1.0", [*V1, later])
    lake.apply()
    path = lake.settings.contracts / "orders.yaml"
    path.write_text(path.read_text().replace("value: at", "value: later").replace("1.1.0", "1.2.0"))
    with pytest.raises(UsageError, match=r"event time at → later.*partitioned by the old one"):
        lake.apply()


def test_a_version_says_which_contract_judged(lake: Lake) -> None:
    write_contract(lake.settings, "1.0.0", [*V1, NOTE])
    for attempt in (lake.apply, lake.start):
        with pytest.raises(UsageError, match=r"version 1\.0\.0 was applied before") as caught:
            attempt()
        assert "Increase the version" in caught.value.hint
    # Nor a version that was applied before the newest.
    write_contract(lake.settings, "1.1.0", [*V1, NOTE])
    lake.apply()
    write_contract(lake.settings, "1.0.0", [*V1, NOTE])
    with pytest.raises(UsageError, match=r"version 1\.0\.0 was applied before"):
        lake.apply()
    # A text with the same rules needs no new version.
    write_contract(lake.settings, "1.1.0", [*V1, NOTE], more="# a comment\n")
    lake.start()
    assert lake.versions() == ["1.0.0", "1.1.0", "1.1.0"]


def test_a_start_takes_what_changes_no_column(lake: Lake) -> None:
    rule = "    quality:\n      - {type: sql, name: some, query: count > 0}\n"
    write_contract(lake.settings, "1.0.1", more=rule)
    lake.start()
    assert (lake.versions(), lake.current()) == (["1.0.0", "1.0.1"], "1.0.1")
    assert len(lake.table().metadata.schemas) == 1
    changes = {row["number"]: row["changes"] for row in lake.table("ops.schema_changes").scan().to_arrow().to_pylist()}
    assert changes[2] == ["rule some added: tightened"]


def test_a_start_does_not_change_columns(lake: Lake) -> None:
    write_contract(lake.settings, "1.1.0", [COUNT, V2[2], *V1[2:], NOTE])
    with pytest.raises(UsageError, match=r"1\.1\.0 of orders .* applied: .* does not have ratio, note") as caught:
        lake.start()
    assert "lakeproof contract apply orders" in caught.value.hint
    assert (lake.versions(), lake.current(), len(lake.table().metadata.schemas)) == (["1.0.0"], "1.0.0", 1)


def test_a_change_of_the_drift_policy(lake: Lake) -> None:
    def write(version: str, policy: str) -> None:
        write_contract(lake.settings, version)
        path = lake.settings.contracts / "orders.yaml"
        drift = f"customProperties:\n  - {{property: driftPolicy, value: {policy}}}\n"
        path.write_text(path.read_text().replace("customProperties:\n", drift))

    before = ids(lake.table().schema())
    write("1.1.0", "discard")
    lake.start()
    assert ids(lake.table().schema()) == before
    write("1.2.0", "rescue")
    with pytest.raises(UsageError, match=r"1\.2\.0 of orders has not been applied: .* does not have _rescued"):
        lake.start()
    lake.apply()
    lake.start()
    rescued = ids(lake.table().schema())
    assert rescued.items() > before.items()
    assert "_rescued" in lake.table().schema().column_names
    write("1.3.0", "freeze")
    lake.start()
    assert ids(lake.table().schema()) == rescued
    assert lake.versions() == ["1.0.0", "1.1.0", "1.2.0", "1.3.0"]


@pytest.mark.all
def test_a_column_that_was_dropped_by_hand_comes_back(lake: Lake) -> None:
    with lake.table().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("ratio")
    with pytest.raises(UsageError, match="does not have ratio"):
        lake.start()
    lake.apply()
    lake.start()
    assert "ratio" in lake.table().schema().column_names
    assert lake.versions() == ["1.0.0"]


def test_a_field_is_deprecated_then_dropped_then_restored(lake: Lake) -> None:
    def ratio(more: str, kind: str = "float") -> list[str]:
        return [COUNT, f"{{name: ratio, logicalType: number, physicalType: {kind}, {more}}}", *V1[2:]]

    dropped = "customProperties: [{property: dropped, value: true}]"
    before = ids(lake.table().schema())
    write_contract(lake.settings, "1.0.0", ratio("deprecated: true, description: A ratio."))
    lake.start()  # records are judged as before, so the version may remain the same
    assert lake.table().schema().find_field("ratio").doc == "Deprecated. A ratio."
    write_contract(lake.settings, "1.1.0", ratio(dropped))
    lake.start()  # no column changes
    assert lake.table().schema().find_field("ratio").doc == "Dropped: null in new rows."
    for fields, says in (
        ([COUNT, *V1[2:]], "ratio: dropped field removed (its column stays, so the contract keeps the field)"),
        ([COUNT, "{name: ratio, logicalType: string}", *V1[2:]], "type changed: float → string"),
        (ratio("required: true"), "ratio: required field restored (existing rows may not have it)"),
    ):
        write_contract(lake.settings, "1.2.0", fields)
        with pytest.raises(UsageError, match=re.escape(says)):
            lake.apply()
    write_contract(lake.settings, "1.2.0", ratio("description: It is back.", "double"))
    lake.apply()
    assert ids(lake.table().schema()) == before
    assert lake.versions() == ["1.0.0", "1.0.0", "1.1.0", "1.2.0"]


def test_a_field_is_renamed_and_renamed_again(lake: Lake) -> None:
    def named(name: str, former: str) -> list[str]:
        renamed = f"customProperties: [{{property: renamedFrom, value: {former}}}]"
        return [COUNT, f"{{name: {name}, logicalType: number, physicalType: float, {renamed}}}", *V1[2:]]

    number = ids(lake.table().schema())["ratio"]
    write_contract(lake.settings, "1.1.0", named("share", "ratio"))
    with pytest.raises(UsageError, match=r"has not been applied: bronze\.orders does not have share"):
        lake.start()
    lake.apply()
    for former, says in (
        ("share", "former names changed (former names stay: expected renamedFrom [ratio, share])"),
        ("[share, ratio]", "expected renamedFrom [ratio, share]"),
    ):
        write_contract(lake.settings, "1.2.0", named("part", former))
        with pytest.raises(UsageError, match=re.escape(says)):
            lake.apply()
    write_contract(lake.settings, "1.2.0", [COUNT, V1[1].replace("ratio", "share"), *V1[2:]])
    with pytest.raises(UsageError, match=r"expected renamedFrom \[ratio\]") as caught:
        lake.apply()
    assert "renamed from" not in caught.value.message
    write_contract(lake.settings, "1.2.0", named("part", "[ratio, share]"))
    lake.apply()
    assert ids(lake.table().schema())["part"] == number
    assert not {"ratio", "share"} & ids(lake.table().schema()).keys()
    assert json.loads(lake.table().properties[RENAMED]) == {"ratio": "part", "share": "part"}
    # A former name of a field cannot be used for another field.
    write_contract(lake.settings, "1.3.0", [*named("part", "[ratio, share]"), "{name: Share, logicalType: string}"])
    with pytest.raises(UsageError, match="the fields 'share' and 'Share' would be one column"):
        lake.apply()


@pytest.mark.parametrize("fields", ["id", "at"])
def test_the_key_and_the_event_time_keep_their_names(lake: Lake, fields: str) -> None:
    path = lake.settings.contracts / "orders.yaml"
    text = (
        path.read_text().replace("1.0.0", "2.0.0").replace("value: at", f"value: {'at2' if fields == 'at' else 'at'}")
    )
    renamed = f"name: {fields}2, customProperties: [{{property: renamedFrom, value: {fields}}}],"
    path.write_text(text.replace(f"name: {fields},", renamed))
    with pytest.raises(UsageError, match=r"\((existing rows are identified|the table is partitioned) by the old one\)"):
        lake.apply()


def test_silver_follows_with_bronze(lake: Lake) -> None:
    names = silver_tables("orders")
    contract = plan(lake.catalog, lake.settings, "orders").contract
    ensure_silver_tables(lake.catalog, contract, names)
    write_contract(lake.settings, "1.1.0", V2)
    lake.apply()
    for name in (names.kept, names.conflicts, names.late):
        columns_of = lake.table(name).schema().column_names
        assert {"alias", "code", "note", "place.gone"} <= {*columns_of}
        assert "nick" not in columns_of
        assert json.loads(lake.table(name).properties[RENAMED]) == {"nick": "alias"}
    assert RENAMED not in lake.table(names.ledger).properties


STEPS = {"ensure_tables": apply, "evolve": apply, "record": apply}


@pytest.mark.parametrize("moment", first_by_default(["before", "after"]))
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("first", first_by_default([False, True]), ids=["second contract", "first contract"])
def test_after_a_crash_at_any_step_doing_it_again_finishes(
    lake_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool, step: str, moment: str
) -> None:
    lake = Lake(lake_settings.model_copy(update={"contracts": tmp_path / "contracts"}))
    write_contract(lake.settings, "1.0.0")
    if not first:
        lake.start()
        write_contract(lake.settings, "1.1.0", V2)
    real = getattr(STEPS[step], step)

    def crash(*arguments: Any) -> None:
        if moment == "after":
            real(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(STEPS[step], step, crash)
        with pytest.raises(KeyboardInterrupt):
            lake.apply()
    assert lake.log.current("orders") is None if first else lake.current() == "1.0.0"
    lake.apply()
    due = ["1.0.0"] if first else ["1.0.0", "1.1.0"]
    assert (lake.versions(), lake.current()) == (due, due[-1])
    assert len(lake.table().metadata.schemas) == len(due)


ALIAS = "{name: alias, logicalType: string, customProperties: [{property: renamedFrom, value: nick}]}"


@pytest.mark.parametrize(
    ("begun", "says"),
    [
        pytest.param([*V1[:-2], ALIAS, V1[-1]], "it was renaming nick to alias", marks=pytest.mark.long),
        pytest.param(
            ["{name: count, logicalType: integer, required: true}", *V1[1:]],
            "it was widening count",
            marks=pytest.mark.long,
        ),
        (V2, "it was renaming nick to alias, and widening count, .*ratio"),
    ],
)
def test_after_a_crash_an_older_contract_is_refused(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, begun: list[str], says: str
) -> None:
    def crash(*_arguments: Any) -> None:
        raise KeyboardInterrupt

    write_contract(lake.settings, "1.1.0", begun)
    with monkeypatch.context() as patch:
        patch.setattr(apply, "record", crash)
        with pytest.raises(KeyboardInterrupt):
            lake.apply()
    left = lake.table().schema()
    other = [*V1[:-2], ALIAS.replace("alias", "other"), V1[-1]]
    for version, fields in (("1.0.0", V1), ("1.1.0", other)):
        write_contract(lake.settings, version, fields)
        for attempt in (lake.apply, lake.start):
            with pytest.raises(UsageError, match=f"another contract of orders was interrupted: {says}") as caught:
                attempt()
            assert "Apply that contract again" in caught.value.hint
    assert (lake.table().schema(), lake.versions()) == (left, ["1.0.0"])
    write_contract(lake.settings, "1.2.0", [*begun, "{name: more, logicalType: string}"])
    lake.apply()
    assert lake.versions() == ["1.0.0", "1.2.0"]


@pytest.mark.all
def test_a_lake_from_before_is_recorded_as_it_is(lake_settings: Settings, tmp_path: Path) -> None:
    lake = Lake(lake_settings.model_copy(update={"contracts": tmp_path / "contracts"}))
    write_contract(lake.settings, "1.0.0")
    ensure_tables(lake.catalog, plan(lake.catalog, lake.settings, "orders").contract)
    write_contract(lake.settings, "1.1.0", V2)
    for attempt in (lake.apply, lake.start):
        with pytest.raises(
            UsageError, match=r"contract of bronze\.orders, and contract 1\.1\.0 does not match the table: alias, count"
        ) as caught:
            attempt()
        assert "Restore the old contract" in caught.value.hint
    write_contract(lake.settings, "1.0.0")
    lake.start()
    write_contract(lake.settings, "1.1.0", V2)
    lake.apply()
    assert lake.versions() == ["1.0.0", "1.1.0"]


def test_tables_from_before_get_the_columns_of_our_own_that_they_lack(lake: Lake) -> None:
    for name, column in (
        ("ledger.orders", "etag"),
        ("dead_letters.orders", "_attempt"),
        ("bronze.orders", "_landed_at"),
    ):
        with lake.table(name).update_schema(allow_incompatible_changes=True) as update:
            update.delete_column(column)
        lake.start()
        assert column in lake.table(name).schema().column_names
    assert lake.versions() == ["1.0.0"]


@pytest.mark.all
def test_a_landing_log_that_was_lost_gets_the_contracts_back(lake: Lake) -> None:
    write_contract(lake.settings, "1.1.0", V2)
    lake.apply()
    for file in lake.settings.home.glob("landing-log.db*"):
        file.unlink()
    fresh = Lake(lake.settings)
    fresh.start()
    assert fresh.current() == "1.1.0"
    assert [fresh.log.text(each.digest) for each in applied_contracts(fresh.catalog, "orders")] == [
        each.text for each in applied_contracts(lake.catalog, "orders")
    ]


@pytest.mark.all
def test_what_is_applied_while_a_consumer_starts_holds(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    real = apply.carry_out

    def slow(catalog: Any, planned: Any, log: ContractLog) -> None:
        monkeypatch.undo()
        write_contract(lake.settings, "1.1.0", V2)
        lake.apply()
        real(catalog, planned, log)

    monkeypatch.setattr(apply, "carry_out", slow)
    lake.start()
    assert lake.current() == "1.1.0"


def test_of_two_that_apply_at_once_one_is_refused(lake: Lake) -> None:
    write_contract(lake.settings, "1.1.0", [*V1, NOTE])
    late = plan(lake.catalog, lake.settings, "orders")
    write_contract(lake.settings, "1.2.0", V2)
    lake.apply()
    with pytest.raises(AppliedMeanwhileError, match="at the same time"):
        carry_out(lake.catalog, late, lake.log)
    assert (lake.versions(), lake.current()) == (["1.0.0", "1.2.0"], "1.2.0")


@pytest.mark.all
def test_a_row_of_another_stream_comes_between(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    write_contract(lake.settings, "1.1.0", V2)
    planned = plan(lake.catalog, lake.settings, "orders")
    events = plan(lake.catalog, lake.settings.model_copy(update={"contracts": Path("contracts")}), "events")
    real = Table.append

    def append(self: Table, rows: pa.Table) -> None:
        monkeypatch.undo()
        record(lake.catalog, events.contract, events.text, (), None)
        real(self, rows)

    monkeypatch.setattr(Table, "append", append)
    carry_out(lake.catalog, planned, lake.log)
    assert lake.versions() == ["1.0.0", "1.1.0"]
    assert [each.number for each in applied_contracts(lake.catalog, "events")] == [1]


@pytest.mark.all
def test_an_append_comes_between(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Transaction.update_schema

    def update_schema(self: Transaction) -> Any:
        if self._table.name() != ("bronze", "orders"):
            return real(self)
        monkeypatch.undo()
        rows = [{"id": "x", "at": datetime.fromisoformat(AT), "count": 1}]
        for _ in range(2):  # one with the old metadata, loaded before, and one with new metadata
            other = lake.table()
            with other.update_schema() as update:
                update.update_column("ratio", doc="as others said")
        other.append(pa.Table.from_pylist(rows, schema=other.schema().as_arrow()))
        return real(self)

    monkeypatch.setattr(Transaction, "update_schema", update_schema)
    write_contract(lake.settings, "1.1.0", V2)
    lake.apply()
    assert lake.table().schema().find_field("count").field_type == LongType()
    assert lake.table().scan().count() == 1


@pytest.mark.all
def test_a_table_that_never_rests_is_one_line(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: Any, **_named: Any) -> None:
        raise CommitFailedException

    write_contract(lake.settings, "1.1.0", V2)
    with monkeypatch.context() as patch:
        patch.setattr(Table, "_do_commit", fail)
        with pytest.raises(UnavailableError, match=r"bronze\.orders: other writers keep changing it"):
            lake.apply()
    assert evolution.lacking(lake.table().schema(), bronze_schema(plan(lake.catalog, lake.settings, "orders").contract))


def test_a_column_that_others_made_with_another_type_is_told(lake: Lake) -> None:
    with lake.table().update_schema() as update:
        update.add_column("note", LongType())
    write_contract(lake.settings, "1.1.0", [*V1, NOTE])
    with pytest.raises(LakeproofError, match=r"Cannot change the table bronze\.orders: .*note"):
        lake.apply()
    assert (lake.versions(), applied.applied_contracts(lake.catalog, "none")) == (["1.0.0"], ())


@pytest.mark.all
def test_how_a_widened_float_is_compared_with_a_constant(lake: Lake) -> None:
    """As in docs/contracts/change.md. If one of the first two fails, the engine was fixed: correct the page."""
    rows = [{"id": "old", "at": datetime.fromisoformat(AT), "ratio": 0.1}]
    table = lake.table()
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    write_contract(lake.settings, "1.1.0", V2)
    lake.apply()
    table = lake.table()
    with connect(lake.settings) as duckdb:

        def found(condition: str) -> int:
            return len(duckdb.connection.execute(f"SELECT id FROM bronze.orders WHERE {condition}").fetchall())

        assert found("ratio > 0.1") == 0
        assert table.scan("ratio > 0.1").to_arrow().num_rows == 0
        assert found("ratio + 0 > 0.1") == 1
        assert table.scan().to_arrow().filter(pc.field("ratio") > 0.1).num_rows == 1
        duckdb.connection.execute("SET disabled_optimizers = 'filter_pushdown'")
        assert found("ratio > 0.1") == 1


@pytest.mark.all
def test_a_column_that_was_renamed_by_hand(lake: Lake) -> None:
    """By Spark's ALTER TABLE, for example. The contract must rename it, too: rows under the old one may follow."""
    with lake.table().update_schema() as update:
        update.rename_column("nick", "alias")
    with pytest.raises(UsageError, match="does not have nick"):
        lake.start()
    write_contract(lake.settings, "1.1.0", V2)
    lake.apply()
    assert json.loads(lake.table().properties[RENAMED]) == {"nick": "alias"}
    assert "nick" not in lake.table().schema().column_names


@pytest.mark.all
def test_a_row_whose_answer_was_lost_is_there_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog rejects a commit that was already made: its client sent it twice."""
    commit_table = type(lake.catalog).commit_table
    refused: list[str] = []

    def refuse(catalog: Any, table: Table, *arguments: Any) -> Any:
        answer = commit_table(catalog, table, *arguments)
        if table.name() == ("ops", "schema_changes"):
            refused.append("")
            raise CommitFailedException
        return answer

    write_contract(lake.settings, "1.1.0", V2)
    with monkeypatch.context() as patch:
        patch.setattr(type(lake.catalog), "commit_table", refuse)
        lake.apply()
    assert refused == [""]
    lake.apply()
    assert lake.versions() == ["1.0.0", "1.1.0"]
    with connect(lake.settings) as session:
        found = session.sql("SELECT number FROM ops.schema_changes ORDER BY number")
        assert found is not None
        assert found.fetchall() == [(1,), (2,)]
