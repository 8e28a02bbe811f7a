"""Replayed dead letters land once, in their original place, and pass through silver and gold."""

import gzip
import json
import random
import secrets
import shutil
import zlib
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.consumer.crashes import crash_before
from tests.consumer.lake import SessionOf, rows
from tests.consumer.replays import (
    STREAM,
    WRONG,
    Landing,
    apply,
    batch,
    check_clean,
    content,
    drain,
    land,
    order,
    replay,
    verify,
    write_contract,
)
from tests.hashes import check_hashes
from tests.lakes import changed, put_back
from tests.messages import send
from tests.selection import examples
from tests.servers import KafkaServer

from consumer.layers.bronze.letter_condition import spark_condition, spark_expression
from consumer.layers.bronze.letters import Choice
from consumer.layers.bronze.replay import Replay, ReplayLayer
from consumer.layers.bronze.transform import Transform, read_transform
from consumer.queries.replay import preview, report
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.settings import Settings
from lakeproof.state.lease import LeaseHeldError, lease

pytestmark = pytest.mark.spark

OF_SILVER = frozenset({"_content_hash", "_horizon"})
"""Columns that differ between the tables of silver."""


@pytest.fixture
def settings(lake_settings: Settings, tmp_path: Path) -> Settings:
    changes = {"LAKE_CONTRACTS": tmp_path / "contracts", "LAKE_GOLD": tmp_path / "gold"}
    settings = changed(lake_settings, **changes)
    write_contract(settings, right=False)
    return settings


@pytest.fixture(params=["files", pytest.param("kafka", marks=pytest.mark.long)])
def landing(request: pytest.FixtureRequest) -> Landing:
    """Return the landing of each source in turn."""
    if request.param == "files":
        return Landing()
    kafka: KafkaServer = request.getfixturevalue("kafka")
    return Landing(kafka, kafka.new_topic())


def values(first: int = 0, **fields: Any) -> list[bytes]:
    """Return nine orders, of which the wrong contract refuses six."""
    made = [order(first + number, **([{}, *WRONG][number % 4]), **fields) for number in range(8)]
    return [*made, order(first + 8, **fields)]


def test_what_a_wrong_contract_refused_ends_as_if_it_had_been_right(
    settings: Settings, session_of: SessionOf, landing: Landing, tmp_path: Path
) -> None:
    settings = landing.of(settings)
    right = changed(settings, LAKE_HOME=tmp_path / "right", LAKE_CONTRACTS=tmp_path / "contracts-right")
    write_contract(right, right=True)
    old = "2026-09-01T06:00:00Z"  # before the horizon, once newer rows have landed
    landing.land([settings, right], batch(*values(at=old)))
    for each in (settings, right):
        drain(each, session_of, landing.source)
    landing.land([settings, right], batch(*values(100)), batch(*values(200)), *values(300))
    for each in (settings, right):
        drain(each, session_of, landing.source)
    refused = rows(settings, "dead_letters.orders")
    assert len(refused) == 24
    write_contract(settings, right=True)
    apply(settings)
    done = replay(settings, session_of)
    assert sum(done.closed.values()) == done.letters == 24
    assert content(settings, "bronze.orders") == content(right, "bronze.orders")
    # Silver and gold, too, except for rows behind the horizon by now.
    is_late = {"_source": landing.name(0), "at": datetime.fromisoformat(old)}
    late = rows(settings, "silver.orders_late")
    assert sorted(row["_position"] for row in late) == [1, 2, 3, 5, 6, 7]
    assert all(row | is_late == row for row in late)
    both = content(settings, "silver.orders", but=OF_SILVER) + content(settings, "silver.orders_late", but=OF_SILVER)
    assert sorted(both) == content(right, "silver.orders", but=OF_SILVER)
    assert rows(right, "silver.orders_late") == []
    windows = [[row for row in content(each, "gold.totals") if "(2026, 9" not in row] for each in (settings, right)]
    assert windows[0] == windows[1] != []
    assert sum(row["orders"] for row in rows(settings, "gold.totals")) == len(rows(settings, "silver.orders")) == 30
    assert sum(row["orders"] for row in rows(right, "gold.totals")) == 36
    assert rows(settings, "dead_letters.orders") == refused  # they stay as they landed
    assert {row["outcome"] for row in rows(settings, "dead_letters.orders_attempts")} == {"closed"}
    check_clean(verify(settings))
    assert replay(settings, session_of).letters == 0
    landing.land([settings], batch(*values(400)))
    drain(settings, session_of, landing.source)
    assert len(rows(settings, "bronze.orders")) == 45
    booked = Counter[tuple[Any, ...]]()
    for row in rows(settings, "ledger.orders"):
        booked[row["replay"]] += row["bronze"]
    assert booked == {None: 21, 1: 24}


@pytest.mark.all
@pytest.mark.parametrize("source", ["files", "kafka"])
def test_untouched_letters_are_replayed_alike_with_and_without_spark(
    settings: Settings,
    session_of: SessionOf,
    monkeypatch: pytest.MonkeyPatch,
    kafka: KafkaServer,
    tmp_path: Path,
    source: str,
) -> None:
    found: list[Any] = []
    topic, landed_values = kafka.new_topic(), [*values(), order(50, kind="broken")]
    if source == "kafka":
        send(kafka, topic, landed_values, key=b"k", headers=[("trace", b"t")])
        at = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "LAKE_KAFKA_STARTING_OFFSETS": "earliest"}
        settings = changed(settings, **at)
    for way in ("direct", "spark"):
        each = changed(settings, LAKE_HOME=tmp_path / way, LAKE_CONTRACTS=tmp_path / f"contracts-{way}")
        if source == "kafka":
            each = each.model_copy(update={"kafka": each.kafka.model_copy(update={"topic": topic})})
        write_contract(each, right=False)
        land(each, "1.json", batch(*landed_values))
        drain(each, session_of, source)
        write_contract(each, right=True)
        apply(each)
        if way == "spark":
            monkeypatch.setattr(ReplayLayer, "_untouched", lambda _: None)
        done = replay(each, session_of)
        found.append([done.fates, content(each, "bronze.orders"), content(each, "dead_letters.orders_attempts")])
    assert found[0][0][("not_allowed", "failed", "not_allowed")] == 1
    assert found[0] == found[1]


@pytest.mark.all
def test_dead_letters_without_the_number_of_their_attempt_landed_so(
    settings: Settings, session_of: SessionOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(settings, "0.json", batch(*values(100)) + b",")
    landed(settings, session_of)
    table = open_catalog(settings).load_table("dead_letters.orders")
    letters = table.scan().to_arrow()
    at = letters.schema.get_field_index("_attempt")
    table.overwrite(letters.set_column(at, letters.schema.field(at), pa.nulls(len(letters), pa.int32())))
    crash_before(monkeypatch)(1)  # so that the attempts are read again, too
    with pytest.raises(LakeproofError, match="crashed, as asked"):
        replay(settings, session_of, Replay(salvage=True))
    replay(settings, session_of, Replay(salvage=True))
    assert places(settings, "bronze.orders") == [(f"{name}.json", at) for name in (0, 1) for at in range(9)]
    attempts = [row for row in rows(settings, "dead_letters.orders_attempts") if row["outcome"] == "closed"]
    assert [row["_letter"] for row in attempts] == [1] * 7


def landed(settings: Settings, session_of: SessionOf, *, put_right: bool = True) -> None:
    """Land a batch with six dead letters; if `put_right`, correct the contract that refused them."""
    land(settings, "1.json", batch(*values()))
    drain(settings, session_of)
    if put_right:
        write_contract(settings, right=True)
        apply(settings)


def places(settings: Settings, table: str) -> list[tuple[str, int]]:
    return sorted((row["_source"], row["_position"]) for row in rows(settings, table))


def snapshots(settings: Settings) -> dict[str, int]:
    """Return the newest snapshot of each table."""
    catalog = open_catalog(settings)
    tables = [catalog.load_table(name) for space in catalog.list_namespaces() for name in catalog.list_tables(space)]
    return {".".join(each.name()): snapshot.snapshot_id for each in tables if (snapshot := each.current_snapshot())}


STEPS = ["before attempts", "before bronze", "before dead letters", "before ledger"]


# Each command finishes each step, with the losses in turn. `make chaos ARGS="--part replay"` has all combinations.
@pytest.mark.all
@pytest.mark.parametrize(
    ("step", "by", "lost"),
    [
        pytest.param(STEPS[0], "run", "checkpoint", marks=pytest.mark.long),
        (STEPS[0], "replay", "checkpoint and log"),
        pytest.param(STEPS[1], "run", "nothing", marks=pytest.mark.long),
        pytest.param(STEPS[1], "replay", "checkpoint", marks=pytest.mark.long),
        pytest.param(STEPS[2], "run", "checkpoint and log", marks=pytest.mark.long),
        pytest.param(STEPS[2], "replay", "nothing", marks=pytest.mark.long),
        (STEPS[3], "run", "checkpoint"),
        pytest.param(STEPS[3], "replay", "checkpoint and log", marks=pytest.mark.long),
    ],
)
def test_an_interrupted_replay_is_finished_once(
    settings: Settings, session_of: SessionOf, monkeypatch: pytest.MonkeyPatch, step: str, by: str, lost: str
) -> None:
    land(settings, "0.json", batch(*values(100)) + b",")
    landed(settings, session_of)
    crash_before(monkeypatch)(STEPS.index(step))
    with pytest.raises(LakeproofError, match="crashed, as asked"):
        replay(settings, session_of, Replay(salvage=True))
    # Losses and newer files do not affect a replay that was begun.
    if lost != "nothing":
        shutil.rmtree(settings.home / "checkpoints")
    if lost == "checkpoint and log":
        for file in settings.home.glob("landing-log.db*"):
            file.unlink()
    land(settings, "2.json", batch(order(200)))
    if by == "run":
        drain(settings, session_of)
        outcomes = [] if step == "before attempts" else ["closed"] * 7
        assert [row["outcome"] for row in rows(settings, "dead_letters.orders_attempts")] == outcomes
    replay(settings, session_of, Replay(salvage=True))
    drain(settings, session_of)
    whole = [(f"{name}.json", position) for name in (0, 1) for position in range(9)] + [("2.json", 0)]
    assert places(settings, "bronze.orders") == whole
    assert len(rows(settings, "silver.orders")) == len(whole)
    attempts = [row for row in rows(settings, "dead_letters.orders_attempts") if row["outcome"] == "closed"]
    assert len({(row["_source"], row["_position"], row["_letter"]) for row in attempts}) == len(attempts) == 7
    assert sorted((row["_source"], row["_position"], row["_attempt"]) for row in rows(settings, "dead_letters.orders"))[
        :2
    ] == [("0.json", 0, 1), ("0.json", 9, 2)]
    check_hashes(settings, STREAM)


@pytest.mark.all
def test_a_micro_batch_that_spark_did_not_record_is_not_repeated_behind_a_replay(
    settings: Settings, session_of: SessionOf
) -> None:
    landed(settings, session_of)
    newest = max((settings.home / "checkpoints" / f"bronze-{STREAM}" / "commits").glob("[0-9]*"))
    newest.unlink()
    for crc in newest.parent.glob(f".{newest.name}.crc"):
        crc.unlink()
    replay(settings, session_of)
    land(settings, "2.json", batch(order(200)))
    drain(settings, session_of)
    assert places(settings, "bronze.orders") == [("1.json", position) for position in range(9)] + [("2.json", 0)]


@pytest.mark.all
@pytest.mark.parametrize("landing", ["files", pytest.param("kafka", marks=pytest.mark.long)], indirect=True)
def test_salvage_leaves_no_complete_record_behind(settings: Settings, session_of: SessionOf, landing: Landing) -> None:
    settings = landing.of(settings)
    write_contract(settings, right=True)
    batches = cut_batches(examples(400))
    landing.land([settings], *batches)
    drain(settings, session_of, landing.source)
    assert rows(settings, "bronze.orders") == []
    done = replay(settings, session_of, Replay(salvage=True))
    assert done.letters == len(batches)
    good, bad, nothing = set(), {}, set()
    for number, value in enumerate(batches):
        records, rest = complete_records(value)
        for position, record in enumerate(records):
            if record.startswith(b"{"):
                good.add((landing.name(number), position))
            else:
                bad[landing.name(number), position] = record
        if records:
            bad[landing.name(number), len(records)] = rest
        else:
            nothing.add(landing.name(number))
    assert len(good) > 2 * len(batches)
    assert places(settings, "bronze.orders") == sorted(good)
    letters = rows(settings, "dead_letters.orders")
    left = {(row["_source"], row["_position"]): row["raw"] for row in letters if row["_attempt"] == 2}
    assert left == bad
    assert len(letters) == len(batches) + len(bad)
    attempts = rows(settings, "dead_letters.orders_attempts")
    assert {row["_source"] for row in attempts if row["outcome"] == "failed"} == nothing != set()
    check_clean(verify(settings))
    # The rest of a batch is a dead letter like any other: it fails again, and nothing is salvaged twice.
    again = replay(settings, session_of, Replay(salvage=True))
    assert {outcome for _, outcome, _ in again.fates} == {"failed"}
    assert places(settings, "bronze.orders") == sorted(good)


def cut_batches(count: int) -> list[bytes]:
    """Return arrays of orders with brackets, quotes, escapes and commas in odd places, each cut somewhere."""
    chance = random.Random(29)
    odd = ["}", "]", "{[", '"', "\\", '\\"', "},{", ",", "\u00e4\u20ac\U0001f600", "\n", "\x00", ""]
    made = []
    for number in range(count):
        records = []
        for index in range(chance.randrange(1, 16)):
            note = "".join(chance.choices(odd, k=chance.randrange(6)))
            record = json.loads(order(1_000 * number + index, note=note))
            text = json.dumps(record, ensure_ascii=chance.random() < 0.5, indent=chance.choice([None, None, 1]))
            records.append(chance.choices([text, "12.5", '"}]"', "null", "[[1], {}]"], [20, 1, 1, 1, 1])[0])
        space = chance.choice(["", " ", "\n", "\r\n\t"])
        whole = f"{space}[{space}{f'{space},{space}'.join(records)}{space}]".encode()
        made.append(whole[: chance.randrange(1, len(whole.rstrip()))])
    return made


def complete_records(value: bytes) -> tuple[list[bytes], bytes]:
    """Return the complete elements of a cut array, and the bytes behind them, using Python's json alone."""
    text = value.decode("latin-1").rstrip()
    decode, space = json.JSONDecoder(strict=False).raw_decode, " \t\r\n"
    found: list[bytes] = []
    behind = start = text.find("[") + 1
    while start < len(text):
        start += len(text[start:]) - len(text[start:].lstrip(space))
        try:
            _, end = decode(text, start)
        except ValueError:
            break
        follows = text[end:].lstrip(space)[:1]
        if follows != "," and text[start] not in '{["':  # a number that was cut is a number, too
            break
        found.append(text[start:end].encode("latin-1"))
        behind, start = end, text.find(",", end) + 1 if follows else len(text)
    return found, text[behind:].encode("latin-1")


@pytest.mark.all
def test_salvage_unpacks_what_can_be_relied_on(settings: Settings, session_of: SessionOf) -> None:
    settings = changed(settings, LAKE_MAX_RECORD_BYTES=1_000)
    write_contract(settings, right=True)
    array, lines = batch(*values()), b"\n".join(values(100))
    member, other = gzip.compress(array[:300]), gzip.compress(array[300:])
    damaged = bytearray(gzip.compress(array))
    damaged[len(damaged) // 2] ^= 1
    packed = {
        "array": gzip.compress(array)[:-30],
        "end": gzip.compress(array)[:-1],  # its checksum is cut: all content is unpacked, but more may be missing
        "lines": gzip.compress(lines)[:-20],
        "second": member + other[:-20],
        "damaged": bytes(damaged),  # content that was unpacked before the damage was noticed may be wrong
        "damaged-second": member + other[:-3] + b"x" + other[-2:],
        "header": gzip.compress(array)[:12],
        "garbage": b"\x1f\x8bgarbage",
        "named": b"none of it is gzip",
        "large": gzip.compress(batch(*[order(number, note=secrets.token_hex(400)) for number in range(5)]))[:-600],
    }
    for name, value in packed.items():
        land(settings, f"{name}.json.gz", value)
    drain(settings, session_of)
    assert {row["_source"]: row["raw"] for row in rows(settings, "dead_letters.orders")} == {
        f"{name}.json.gz": value if len(value) <= 1_000 else None for name, value in packed.items()
    }
    replay(settings, session_of)
    failed = rows(settings, "dead_letters.orders_attempts")
    codes = {row["_source"]: row["reasons"][0]["code"] for row in failed}
    assert codes.pop("named.json.gz") == "corrupt_batch"
    assert set(codes.values()) == {"undecodable"}
    assert rows(settings, "bronze.orders") == []
    replay(settings, session_of, Replay(salvage=True))
    counts = {
        "array": len(complete_records(partly_unpacked(packed["array"]))[0]),
        "end": 9,
        "lines": partly_unpacked(packed["lines"]).count(b"}"),
        "second": len(complete_records(array[:300] + partly_unpacked(other[:-20]))[0]),
        "damaged-second": len(complete_records(array[:300])[0]),
        "large": len(complete_records(partly_unpacked(packed["large"]))[0]),
    }
    assert all(1 < count < 9 for name, count in counts.items() if name != "end")
    places_of = {name: [(f"{name}.json.gz", position) for position in range(count)] for name, count in counts.items()}
    assert places(settings, "bronze.orders") == sorted(place for each in places_of.values() for place in each)
    rest = [row for row in rows(settings, "dead_letters.orders") if row["_attempt"] == 2]
    assert {(row["_source"], row["_position"], row["raw"]) for row in rest} == {
        (f"{name}.json.gz", count, packed[name] if name != "large" else None) for name, count in counts.items()
    }
    assert {row["reasons"][0]["code"] for row in rest} == {"undecodable"}
    check_clean(verify(settings))
    found = {
        row["_source"]: row["outcome"] for row in rows(settings, "dead_letters.orders_attempts") if row["replay"] == 2
    }
    assert [name for name in packed if found[f"{name}.json.gz"] == "failed"] == [
        "damaged",
        "header",
        "garbage",
        "named",
    ]
    replay(settings, session_of, Replay(salvage=True))
    assert len(rows(settings, "bronze.orders")) == sum(counts.values())
    check_clean(verify(settings))


def partly_unpacked(packed: bytes) -> bytes:
    """Return what can be unpacked from a gzip member that was cut short."""
    return zlib.decompressobj(31).decompress(packed)


def test_without_salvage_a_batch_that_was_cut_short_fails(settings: Settings, session_of: SessionOf) -> None:
    land(settings, "1.json", batch(order(1), order(2))[:-1])
    drain(settings, session_of)
    replay(settings, session_of)
    (attempt,) = rows(settings, "dead_letters.orders_attempts")
    assert (attempt["outcome"], attempt["_attempt"], attempt["letter_reasons"]) == ("failed", 2, "corrupt_batch")
    assert rows(settings, "bronze.orders") == []


@pytest.mark.all
def test_what_fails_as_often_as_it_may_is_parked_until_it_is_asked_for(
    settings: Settings, session_of: SessionOf
) -> None:
    landed(settings, session_of, put_right=False)
    for _ in range(3):
        replay(settings, session_of, Replay(max_attempts=2))
    attempts = rows(settings, "dead_letters.orders_attempts")
    assert sorted((row["_attempt"], row["outcome"]) for row in attempts) == [(2, "failed")] * 6 + [(3, "parked")] * 6
    assert all(row["reasons"] and row["_contract_version"] == "1.0.0" for row in attempts)
    write_contract(settings, right=True)
    apply(settings)
    assert replay(settings, session_of).letters == 0
    replay(settings, session_of, Replay(Choice(parked=True)))
    assert len(rows(settings, "bronze.orders")) == 9


@pytest.mark.all
def test_a_preview_says_what_a_replay_then_does_and_changes_nothing(settings: Settings, session_of: SessionOf) -> None:
    landed(settings, session_of)
    land(settings, "2.json", batch(order(1))[:-4])
    drain(settings, session_of)
    before = snapshots(settings)
    contract = load_contract(settings.contracts, STREAM)
    forecast = preview(settings, contract, Replay(), lambda: session_of(settings))
    assert snapshots(settings) == before
    done = replay(settings, session_of)
    assert (forecast.fates, forecast.outcomes, forecast.closed) == (done.fates, done.outcomes, done.closed)
    text = report(forecast, Replay(), dry_run=True)
    assert text.startswith("7 dead letters would be replayed: 6 closed, 1 failed.\nBronze would get 6 rows.")
    assert "  out_of_range: 2 closed\n    1.json, position 1: " in text
    assert report(done, Replay()).startswith("7 dead letters were replayed: 6 closed, 1 failed.")


CHOICES: list[tuple[str | None, int | None, list[int]]] = [
    ("list_contains(codes, 'unknown_field')", None, [3, 7]),
    ("reasons[1].path = '$.kind'", None, [2, 6]),
    ("_source = '1.json' AND raw LIKE '%used%' AND attempts = 0", None, [2, 6]),
    ("_landed_at < TIMESTAMPTZ '2020-01-01 00:00:00Z'", None, []),
    (None, 2, [1, 2]),
    ("state = 'open' AND _position > 2", 3, [3, 5, 6]),
]


@pytest.mark.all
def test_some_of_them_are_chosen(settings: Settings, session_of: SessionOf) -> None:
    landed(settings, session_of)
    before = {position for _, position in places(settings, "bronze.orders")}
    for where, limit, positions in CHOICES:
        with put_back(settings):
            replay(settings, session_of, Replay(Choice(where and spark_condition("--where", where), limit)))
            replayed = {position for _, position in places(settings, "bronze.orders")} - before
        assert sorted(replayed) == positions, where


@pytest.mark.all
def test_a_condition_that_cannot_be_evaluated_is_refused(settings: Settings, session_of: SessionOf) -> None:
    landed(settings, session_of)
    before = snapshots(settings)
    with pytest.raises(UsageError, match=r"--where cannot be evaluated: .*nothing_like_it"):
        replay(settings, session_of, Replay(Choice(spark_condition("--where", "nothing_like_it = 1"))))
    text = "json_extract_string(raw, '$.kind')::int = 1"
    with pytest.raises(UsageError, match=r"--where cannot be evaluated for one of the dead letters: .*CAST") as caught:
        replay(settings, session_of, Replay(Choice(spark_condition("--where", text))))
    assert "try_cast" in caught.value.hint
    correction = Transform("number.sql", "cast(raw as int)")
    expression = spark_expression("--transform number.sql", correction.text)
    with pytest.raises(UsageError, match=r"--transform number\.sql cannot be evaluated for one of the dead letters"):
        replay(settings, session_of, Replay(transform=correction, expression=expression))
    assert snapshots(settings) == before


TRANSFORM = """\
import json

def transform(raw, letter):
    record = json.loads(raw)
    if record["id"] == "o3":
        raise ValueError("no")
    if record["id"] == "o7":
        return "text"
    record.pop("note", None)
    return json.dumps(record | {"amount": 1, "kind": "new"}).encode()
"""


def test_a_transform_corrects_bytes_and_leaves_its_trace(
    settings: Settings, session_of: SessionOf, tmp_path: Path
) -> None:
    landed(settings, session_of, put_right=False)
    path = tmp_path / "fix.py"
    path.write_text(TRANSFORM)
    transform = read_transform(path)
    replay(settings, session_of, Replay(transform=transform))
    attempts = {row["_position"]: row for row in rows(settings, "dead_letters.orders_attempts")}
    assert {position: row["outcome"] for position, row in attempts.items()} == {
        1: "closed",
        2: "closed",
        3: "failed",
        5: "closed",
        6: "closed",
        7: "failed",
    }
    assert attempts[3]["reasons"] == [{"code": "transform_failed", "path": "$", "detail": "ValueError: no"}]
    assert "returned str, not bytes" in attempts[7]["reasons"][0]["detail"]
    assert {(row["transform"], row["transform_digest"]) for row in attempts.values()} == {("fix.py", transform.digest)}
    assert attempts[1]["raw"] == b'{"id": "o1", "at": "2026-11-21T06:00:00Z", "amount": 1, "kind": "new"}'
    raw = {row["_position"]: row["raw"] for row in rows(settings, "dead_letters.orders")}
    assert b"1099511627776" in raw[1]


@pytest.mark.all
def test_a_transform_may_be_an_expression_of_sql(settings: Settings, session_of: SessionOf) -> None:
    landed(settings, session_of, put_right=False)
    text = """replace(raw, '"used"', '"new"')"""
    expression = spark_expression("--transform", text)
    wanted = Replay(transform=Transform("fix.sql", text), expression=expression)
    replay(settings, session_of, wanted)
    attempts = rows(settings, "dead_letters.orders_attempts")
    closed = {row["_position"]: row["raw"] for row in attempts if row["outcome"] == "closed"}
    assert sorted(closed) == [2, 6]
    assert all(b'"new"' in raw for raw in closed.values())
    assert [row["raw"] for row in attempts if row["outcome"] == "failed"] == [None] * 4


@pytest.mark.all
def test_a_record_that_was_too_large_is_read_again_from_where_it_landed(
    settings: Settings, session_of: SessionOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = changed(settings, LAKE_MAX_RECORD_BYTES=200)
    write_contract(settings, right=True)
    land(settings, "1.json", batch(order(0), order(1, note="x" * 300), order(2)))
    land(settings, "2.json.gz", gzip.compress(batch(order(3), order(4, note="y" * 300))))
    land(settings, "3.json", batch(order(5, note="z" * 300)))
    drain(small, session_of)
    assert [row["raw"] for row in rows(settings, "dead_letters.orders")] == [None] * 3
    landing = settings.home / "landing" / STREAM
    (landing / "3.json").write_bytes(b"[{}]")
    replay(small, session_of)
    assert {row["outcome"] for row in rows(settings, "dead_letters.orders_attempts")} == {"failed"}
    # The attempts have the records that were read, so the replay can be finished without the landed files.
    crash_before(monkeypatch)(STEPS.index("before bronze"))
    with pytest.raises(LakeproofError, match="crashed, as asked"):
        replay(settings, session_of)
    (landing / "1.json").unlink()
    (landing / "2.json.gz").write_bytes(b"something else")
    replay(settings, session_of)
    assert [result.faults for result in verify(settings).of("replays")] == [[]]
    assert places(settings, "bronze.orders") == [
        ("1.json", 0),
        ("1.json", 1),
        ("1.json", 2),
        ("2.json.gz", 0),
        ("2.json.gz", 1),
    ]
    failed = [row for row in rows(settings, "dead_letters.orders_attempts") if row["_source"] == "3.json"]
    assert {row["reasons"][0]["code"] for row in failed if row["_attempt"] > 2} == {"changed"}


@pytest.mark.all
def test_messages_are_replayed_like_files(settings: Settings, session_of: SessionOf, kafka: KafkaServer) -> None:
    topic = kafka.new_topic()
    settings = changed(
        settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers, LAKE_KAFKA_STARTING_OFFSETS="earliest"
    )
    settings = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"topic": topic})})
    send(kafka, topic, values(), key=b"k", headers=[("trace", b"t")])
    send(kafka, topic, [batch(*values(100))])
    send(kafka, topic, [batch(*values(200))[:-1], None])
    drain(settings, session_of, "kafka")
    assert len(rows(settings, "dead_letters.orders")) == 14
    write_contract(settings, right=True)
    apply(settings)
    # Dead letters have their bytes, so the brokers are not needed.
    away = changed(settings, LAKE_KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:9", LAKE_KAFKA_TOPIC="")
    replay(away, session_of, Replay(salvage=True))
    name = f"{topic}/0/{{:019}}".format
    singles = [(name(offset), 0) for offset in range(9)]
    batches = [(name(offset), position) for offset in (9, 10) for position in range(9)]
    assert places(settings, "bronze.orders") == singles + batches
    replayed: list[dict[str, Any]] = [row for row in rows(settings, "bronze.orders") if row["note"] == "hello"]
    assert {(row["_key"], str(row["_headers"])) for row in replayed if row["_source"] < name(9)} == {
        (b"k", "[{'key': 'trace', 'value': b't'}]")
    }
    (ledger,) = [row for row in rows(settings, "ledger.orders") if row["replay"]]
    assert (ledger["source"], ledger["units"], ledger["bronze"]) == (name(1), 22, 21)
    assert dict(ledger["closed"]) == {"corrupt_batch": 1, "not_allowed": 4, "out_of_range": 4, "unknown_field": 4}
    send(kafka, topic, values(300))
    drain(settings, session_of, "kafka")
    assert len(rows(settings, "bronze.orders")) == len(rows(settings, "silver.orders")) == 36


def test_two_replays_or_a_replay_beside_the_consumer_are_refused(settings: Settings, session_of: SessionOf) -> None:
    landed(settings, session_of)
    with lease(settings.state.database, STREAM), pytest.raises(LeaseHeldError):
        replay(settings, session_of)
    assert len(rows(settings, "bronze.orders")) == 3


@pytest.mark.all
def test_a_table_of_attempts_that_was_dropped_is_missed(settings: Settings, session_of: SessionOf) -> None:
    landed(settings, session_of)
    replay(settings, session_of)
    open_catalog(settings).drop_table("dead_letters.orders_attempts")
    for do in (replay, drain):
        with pytest.raises(LakeproofError, match=r"has 0 micro-batches of replays, but ledger\.orders has 1"):
            do(settings, session_of)
    assert len(rows(settings, "bronze.orders")) == 9


def test_a_stream_without_tables_or_dead_letters_says_so(settings: Settings, session_of: SessionOf) -> None:
    with pytest.raises(UsageError, match="orders has no tables yet"):
        replay(settings, session_of)
    land(settings, "1.json", batch(order(1)))
    drain(settings, session_of)
    assert report(replay(settings, session_of), Replay()) == "No dead letters to replay."
