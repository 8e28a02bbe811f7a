"""A forecast equals the result of landing the same files or messages under the new contract, unit by unit."""

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from tests.consumer.lake import Drain, SessionOf, rows
from tests.consumer.replays import WRONG as WRONG_ORDERS
from tests.consumer.replays import apply, batch, drain, land, order, replay, write_contract
from tests.lakes import changed
from tests.messages import event, send
from tests.operations.tables import delete_by_equality, expire_all_but_last, rewrite_data_files
from tests.programs import forked
from tests.selection import only_with_all
from tests.servers import KafkaServer

from consumer.queries.application import run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.trigger import Trigger
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract, parse_contract
from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings
from lakeproof.whatif.forecast import Effect, forecast

ROOT = Path(__file__).parents[2]
RIGHT = {name: (ROOT / "contracts" / f"{name}.yaml").read_text() for name in ("events", "sensors")}
Unit = tuple[str, int]

# Faults of the applied contract by stream: a type, an enum, a missing optional field, and others.
WRONG = {
    "events": [
        ("decimal(12,2)", "decimal(3,2)"),
        ("          - value: purchase\n", ""),
        (
            "      - name: product_id\n        logicalType: string\n"
            "        description: What was bought; purchases only, and only from the day the producer began to "
            "send it.\n",
            "",
        ),
    ],
    "sensors": [("maxLength: 64\n", "maxLength: 64\n          pattern: '[02468]$'\n")],
}


def made(settings: Settings, folder: Path, stream: str, text: str) -> Settings:
    """Return settings of a lake with a contract of its own."""
    contracts = folder / "contracts"
    contracts.mkdir(parents=True)
    (contracts / f"{stream}.yaml").write_text(text)
    return changed(settings, LAKE_HOME=folder / "lake", LAKE_CONTRACTS=contracts)


def sides(settings: Settings, stream: str) -> dict[Unit, str]:
    """Return the set of reasons of each unit; empty for a row of bronze."""
    found = {(row["_source"], row["_position"]): "" for row in rows(settings, f"bronze.{stream}")}
    for row in rows(settings, f"dead_letters.{stream}"):
        codes = sorted({reason["code"] for reason in row["reasons"]})
        found[row["_source"], row["_position"]] = "+".join(codes)
    return found


def check(wrong: Settings, right: Settings, stream: str) -> Counter[tuple[str, str]]:
    """Compare the forecasts from each lake to the other with what landed in the other."""
    now, then = sides(wrong, stream), sides(right, stream)
    assert now.keys() == then.keys()
    for settings, before, other, after in ((wrong, now, right, then), (right, then, wrong, now)):
        text = (other.contracts / f"{stream}.yaml").read_bytes()
        found = forecast(open_catalog(settings), settings, parse_contract(text, "new", stream))
        counted: Counter[tuple[str, str]] = Counter()
        for counts in (found.bronze, found.dead_letters):
            for (_, old, new), tally in counts.moves.items():
                counted[old, new] += tally.units
        assert counted == Counter((before[unit], after[unit]) for unit in before)
    return Counter((now[unit], then[unit]) for unit in now)


@pytest.mark.spark
@pytest.mark.parametrize("stream", [only_with_all("events"), "sensors"])
def test_files(drain_directly: Drain, lake_settings: Settings, tmp_path: Path, stream: str) -> None:
    texts = [RIGHT[stream], RIGHT[stream]]
    for old, new in WRONG[stream]:
        assert old in texts[0]
        texts[0] = texts[0].replace(old, new)
    lakes = [made(lake_settings, tmp_path / name, stream, text) for name, text in zip("ab", texts, strict=True)]
    landing = tmp_path / "landing"
    faults = ("--invalid-schema-chance", "0.3", "--corruption-chance", "0.2") if stream == "events" else ()
    command = [*forked("producer"), stream, "--batches", "8", "--batch-size", "50", "--seed", "3", *faults]
    subprocess.run([*command, "--target", str(landing)], check=True, capture_output=True, timeout=120)
    landing.joinpath("cut.json").write_bytes(b'[{"device_id": 7}, {"device_id": "\xff"}, {')
    landing.joinpath("odd.json").write_bytes(b'{"device_id": 7, "more": []}\n[7]\n{"\xff": nul\n')
    for settings in lakes:
        shutil.copytree(landing, settings.home / "landing" / stream)
        drain_directly(settings, stream)
    changes = check(*lakes, stream)
    assert sum(units for (old, new), units in changes.items() if old and not new) > 20
    assert sum(units for (old, new), units in changes.items() if old and new and old != new) > 0 or stream == "sensors"


@pytest.mark.spark
def test_messages(session_of: SessionOf, kafka: KafkaServer, lake_settings: Settings, tmp_path: Path) -> None:
    topic = kafka.new_topic()
    purchase = {"event_type": "purchase", "product_id": "p", "amount": 12.5}
    values = [
        *(event(number, **(purchase if number % 3 else {})) for number in range(50)),
        json.dumps([json.loads(event(1)), {"a": 1}, json.loads(event(2, **purchase))]).encode(),
        b"[{",
        b"",
        b"7",
        b"\xff\x00",
        None,
    ]
    send(kafka, topic, values, key=b"k", headers=[("h", None)])
    text = RIGHT["events"]
    for old, new in WRONG["events"]:
        text = text.replace(old, new)
    lakes = [
        made(lake_settings, tmp_path / name, "events", each) for name, each in (("a", text), ("b", RIGHT["events"]))
    ]
    for settings in lakes:
        own = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "LAKE_KAFKA_TOPIC": topic}
        of_topic = changed(settings, **own)
        query = BronzeQuery(of_topic, "events", Trigger(available_now=True), "kafka")
        run_queries(of_topic, [query], lambda used=of_topic: session_of(used), available_now=True)
    changes = check(*lakes, "events")
    assert changes["not_allowed+out_of_range+unknown_field", ""] == 34
    assert changes["tombstone", "tombstone"] == 1


@pytest.mark.all
@pytest.mark.spark
def test_a_replay_does_what_the_forecast_says(session_of: SessionOf, lake_settings: Settings, tmp_path: Path) -> None:
    settings = changed(lake_settings, LAKE_CONTRACTS=tmp_path / "contracts", LAKE_GOLD=tmp_path / "gold")
    write_contract(settings, right=False)
    odd = [b"[7]", b'"x"', b"nul", b'{"id": }', b'{"id": "\\ud800"}', b'{"amount": 1e400, "note": 7}']
    land(settings, "1.json", batch(*(order(number, **WRONG_ORDERS[number % 3]) for number in range(30))))
    land(settings, "2.json", batch(*odd, order(100), order(101, kind="none"), order(102, kind="used", amount="x")))
    whole = {"cut": b"[{}, {", "empty": b"", "scalar": b"7", "packed.gz": b"\x1f\x8b no", "plain.gz": b"no"}
    for name, content in whole.items():
        land(settings, f"{name}.json" if "." not in name else name, content)
    drain(settings, session_of)
    write_contract(settings, right=True)
    catalog = open_catalog(settings)
    contract = load_contract(settings.contracts, "orders")
    letters = forecast(catalog, settings, contract).dead_letters
    assert letters.units(Effect.NOT_JUDGED) == 0
    apply(settings)
    done = replay(settings, session_of)
    said: Counter[tuple[str, str]] = Counter()
    for (_, old, new), tally in letters.moves.items():
        said[old, new] += tally.units
    assert said == Counter({(old, new): units for (old, _, new), units in done.fates.items()})
    assert letters.units(Effect.TO_BRONZE) == sum(done.closed.values()) == 30
    after = forecast(catalog, settings, contract)
    assert after.bronze.judged == 31
    assert after.bronze.units(Effect.STAYS) == 31
    assert after.dead_letters.units(Effect.TO_BRONZE) == 0
    assert after.dead_letters.judged == letters.judged - 30


@pytest.mark.all
@pytest.mark.spark
def test_other_tools_may_maintain_the_tables(
    session_of: SessionOf, drain_directly: Drain, lake_settings: Settings, tmp_path: Path
) -> None:
    settings = made(lake_settings, tmp_path, "events", RIGHT["events"])
    folder = settings.home / "landing" / "events"
    for number in range(3):
        values = [json.loads(event(number)), json.loads(event(number + 10, properties={"a": 1})), {"a": "\udc00"}]
        folder.mkdir(parents=True, exist_ok=True)
        folder.joinpath(f"{number}.json").write_text(json.dumps(values))
        drain_directly(settings, "events")
    contract = parse_contract(RIGHT["events"].replace("page_view", "view").encode(), "new", "events")
    catalog = open_catalog(settings)
    before = forecast(catalog, settings, contract)
    assert (before.bronze.units(Effect.TO_DEAD_LETTERS), before.dead_letters.judged) == (6, 3)
    spark = session_of(settings)
    for table in ("bronze.events", "dead_letters.events", "ledger.events"):
        rewrite_data_files(spark, table)
        expire_all_but_last(spark, table)
    after = forecast(catalog, settings, contract)
    assert [
        {move: tally.units for move, tally in counts.moves.items()} for counts in (after.bronze, after.dead_letters)
    ] == [
        {move: tally.units for move, tally in counts.moves.items()} for counts in (before.bronze, before.dead_letters)
    ]
    assert after.days() == before.days()
    delete_by_equality(settings, spark, "bronze.events", "event_id", "e0", "2026-11-21")
    with pytest.raises(LakeproofError, match="equality deletes"):
        forecast(catalog, settings, contract)
