"""The commands in the docs work as described."""

import ast
import csv
import html
import json
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import boto3
import pytest
from tests.collector.running import Collector, messages
from tests.messages import event, received, send
from tests.pages import blocks
from tests.programs import folder
from tests.servers import KafkaServer, free_port

from lakeproof.catalog import open_catalog
from lakeproof.settings import settings_of
from lakeproof.settings.help import as_markdown
from lakeproof.storage.s3 import s3_client
from reader.verify.checks.receipts import Outcome

ROOT = Path(__file__).parents[1]
JARS = {"LAKE_JARS": str(ROOT / "target" / "jars" / "spark")}


def shell(script: str, environment: dict[str, str], programs: Path | None = None) -> str:
    """Return the output of a script; its programs are forks, unless a folder of real ones is given."""
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=ROOT,
        env=os.environ
        | {"PATH": f"{programs or folder()}:{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"}
        | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def walk(document: str, languages: str) -> tuple[str, list[str]]:
    """Return the commands of a document, and their printed lines: in `console` blocks, commands follow $."""
    script, printed = [], []
    for language, block in re.findall(
        rf"^```({languages})\n(.*?)^```$", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL
    ):
        for line in block.splitlines():
            if language == "console" and not line.startswith("$ "):
                printed.append(line)
            else:
                script.append(line.removeprefix("$ "))
    assert len(printed) > 3
    return "\n".join(script), printed


def facts(text: str) -> Counter[str]:
    """Count the words and numbers of an output or a picture, whatever lines, spaces and markup are between them."""
    return Counter(
        re.findall(r"[\w.:+-]+", html.unescape(re.sub(r"<style>.*?</style>|<[^>]*>", " ", text, flags=re.DOTALL)))
    )


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], str]:
    """Environment and output of the README's walk-through."""
    environment = {"LAKE_HOME": str(tmp_path_factory.mktemp("walk") / "lake"), "LAKE_SPARK_UI_PORT": "0"}
    script, _ = walk("README.md", "console")
    own = "export LAKE_HOME=$(mktemp -d)\n"
    assert own in script
    return environment, shell(script.replace(own, ""), environment, ROOT / ".venv" / "bin")


@pytest.mark.spark
def test_the_walk_through_of_the_readme_prints_what_it_says(walked: tuple[dict[str, str], str]) -> None:
    _, printed = walk("README.md", "console")
    assert facts("\n".join(printed)) - facts(walked[1]) == {}


@pytest.mark.all
@pytest.mark.spark
def test_the_pictures_show_what_the_shell_prints(walked: tuple[dict[str, str], str], tmp_path: Path) -> None:
    shell(f"python docs/pictures/draw.py {tmp_path}", walked[0])
    drawn = {path.name: path.read_text() for path in tmp_path.glob("*.svg")}
    shown = {path.name: path.read_text() for path in (ROOT / "docs" / "pictures").glob("*.svg")}
    assert {name: facts(text) for name, text in drawn.items()} == {name: facts(text) for name, text in shown.items()}
    assert min(map(len, map(facts, drawn.values()))) > 20
    assert len(drawn) == 2


@pytest.mark.all
@pytest.mark.spark
def test_the_tutorial_makes_a_stream_of_a_contract_of_under_30_lines(tmp_path: Path) -> None:
    script, printed = walk("docs/tutorial.md", "sh|console")
    (contract,) = re.findall(r"\.yaml <<'END'\n(.*?)^END$", script, re.MULTILINE | re.DOTALL)
    assert 10 < len(contract.splitlines()) < 30
    environment = {"LAKE_SPARK_UI_PORT": "0"}
    said = shell(script.replace("target/tutorial", str(tmp_path)), environment)
    assert facts("\n".join(printed)) - facts(said) == {}


@pytest.mark.all
@pytest.mark.spark
def test_the_page_about_dead_letters_replays_them(tmp_path: Path) -> None:
    script, printed = walk("docs/replay.md", "sh|console")
    environment = {"LAKE_SPARK_UI_PORT": "0"}
    said = shell(script.replace("target/replay", str(tmp_path)), environment)
    for line in printed:
        assert line in said
    assert "Clean" in said.rpartition("Bronze got 22 rows.")[2]


@pytest.mark.spark
def test_the_guide_asks_what_can_be_asked(walked: tuple[dict[str, str], str]) -> None:
    ask = next(block for block in blocks("docs/guide.md", "sh") if "reader tables" in block)
    output = shell(ask, walked[0])
    assert "page_view" in output
    assert "$.event" in output
    assert "ledger.events" in output
    assert output.count("668") >= 1  # the rows that the README's walk-through left in bronze


def test_the_catalogs_of_the_guide_are_settings() -> None:
    postgres, rest = (block for block in blocks("docs/guide.md", "sh") if "LAKE_CATALOG_URI" in block)
    shown = shell(f"{postgres}lakeproof settings", {})
    assert shown.count("postgresql://lake:") == 2
    assert "p%40ss" not in shown
    assert "http://127.0.0.1:8181" in shell(f"{rest}lakeproof settings", {})
    for login in blocks("docs/catalogs.md", "sh"):
        shown = shell(f"{login}lakeproof settings", {})
        assert "https://catalog.example.com" in shown
        assert "CLIENT_ID:SECRET" not in shown


@pytest.mark.long
@pytest.mark.spark
def test_the_guide_runs_several_streams(walked: tuple[dict[str, str], str]) -> None:
    (block,) = blocks("docs/operations/streams.md", "sh")
    shell(block, walked[0])
    assert "ledger.sensors" in shell("reader tables", walked[0])


@pytest.mark.all
@pytest.mark.spark
def test_the_commands_of_operations_do_what_the_pages_say(walked: tuple[dict[str, str], str], tmp_path: Path) -> None:
    make, put_back, *others = (
        block.replace("target/", f"{tmp_path}/") for block in blocks("docs/operations/recover.md", "sh")
    )
    said = shell(make, walked[0])
    [(count, made)] = re.findall(r"^(\d+) tables backed up to (.*)\.$", said, re.MULTILINE)
    assert f"{made}: " in said
    said = shell(re.sub(rf"{tmp_path}/backups/\S+", made, put_back), walked[0])
    assert said.count(": unchanged, ") == 2 * int(count), said
    assert "Nothing was changed." in said
    assert "Restored." in said
    said = shell("\n".join(others), walked[0])
    assert "The next run resumes from the position in the tables." in said
    assert "Found 20 of 20 files" in said
    assert "not all queries run: exit code 4" in shell("\n".join(blocks("docs/operations/README.md", "sh")), walked[0])
    page = "\n".join(block for block in blocks("docs/operations/monitor.md", "sh") if "LAKE_" not in block)
    asked = shell(page.replace("target/", f"{tmp_path}/"), walked[0])
    assert re.search(r"│ stopped +│ +3 │", asked)
    assert json.loads((tmp_path / "verify.json").read_text())
    retained = shell(
        "\n".join(blocks("docs/operations/retention.md", "sh")).replace("target/", f"{tmp_path}/"), walked[0]
    )
    assert retained.count("events: 0 of 20 landed files") == 2
    assert "dead_letters.events: 0 rows older than 90 days removed." in retained
    again = shell("consumer run events --available-now && reader verify", walked[0])
    assert "Clean: each landed unit is in exactly one table, once." in again


@pytest.mark.all
@pytest.mark.spark
def test_the_page_about_erasure_says_how(walked: tuple[dict[str, str], str], tmp_path: Path) -> None:
    (page,) = blocks("docs/operations/erasure.md", "sh")
    said = shell(page.replace("erased.json", f"{tmp_path}/erased.json"), walked[0])
    assert said.count("events: no row of the tables meets the condition.") == 2  # nobody has this name
    assert "files were searched, and have nothing of it." in said
    assert json.loads((tmp_path / "erased.json").read_text())["complete"] is True


@pytest.mark.long
@pytest.mark.spark
def test_the_page_about_monitoring_watches_a_consumer(walked: tuple[dict[str, str], str], tmp_path: Path) -> None:
    scrape, *_ = blocks("docs/operations/monitor.md", "sh")
    page = scrape.replace("9108", str(free_port())).replace("target/", f"{tmp_path}/")
    said = shell(page, walked[0], ROOT / ".venv" / "bin")
    assert '{"status": "ready"}' in said
    (lineage,) = (block for block in blocks("docs/operations/monitor.md", "sh") if "LAKE_LINEAGE" in block)
    events = shell(lineage.replace("target/", f"{tmp_path}/"), walked[0])
    for state in ("START", "COMPLETE"):
        assert events.count(state) == 3
    assert 'consumer_table_rows{table="bronze.events"} 668.0' in said


@pytest.mark.long
@pytest.mark.spark
def test_the_page_about_maintenance_maintains_every_table(tmp_path: Path) -> None:
    products = tmp_path / "gold"
    shutil.copytree(ROOT / "gold", products)
    (products / "readings.yaml").write_text(
        "name: readings\nsilver: sensors\nkeys: [device_id]\nwindow: {size: 1 hour}\nmeasures: {readings: count(*)}\n"
    )
    warehouse = tmp_path / "lake" / "warehouse"
    home = {"LAKE_HOME": str(tmp_path / "lake"), "LAKE_GOLD": str(products), "LAKE_SPARK_UI_PORT": "0"}
    consume = "producer sensors --batches 2 --seed {} && consumer run sensors --available-now"
    for seed in (1, 2):
        shell(consume.format(seed), home)
    catalog = open_catalog(settings_of(home))
    tables = [".".join(name) for (namespace,) in catalog.list_namespaces() for name in catalog.list_tables(namespace)]
    assert len(tables) == 11

    def snapshots() -> dict[str, set[int]]:
        return {table: {each.snapshot_id for each in catalog.load_table(table).snapshots()} for table in tables}

    def content() -> str:
        hashes = (f"select '{table}' as name, sum(hash(t))::varchar as content from {table} t" for table in tables)
        return shell(f'reader sql "{" union all ".join(hashes)}" --format csv', home)

    before = snapshots()
    assert {table for table, found in before.items() if len(found) < 2} == {"ops.schema_changes"}
    own, held, page = blocks("docs/operations/maintenance.md", "sh")
    # The procedures take half a minute per table on a busy machine: run those of two layers, with and without deletes.
    assert all(f'"{namespace}"' in page for (namespace,) in catalog.list_namespaces())
    page = re.sub(r"LAYERS = {.*}", 'LAYERS = {"bronze", "gold"}', page)
    tables = [table for table in tables if table.startswith(("bronze.", "gold."))]
    written = content()
    # As if everything had been written a week ago, and a file had been left next to each table.
    orphans = [
        folder / "data" / "orphan.parquet" for layer in ("bronze", "gold") for folder in warehouse.glob(f"{layer}/*")
    ]
    for orphan in orphans:
        orphan.parent.mkdir(exist_ok=True)
        orphan.write_bytes(b"nobody's")
    week_ago = time.time() - 7 * 86_400
    for path in warehouse.rglob("*"):
        os.utime(path, (week_ago, week_ago))
    assert "timedelta(days=1)" in page
    done = shell(page.replace("timedelta(days=1)", "timedelta(0)").replace("target/", f"{tmp_path}/"), home | JARS)
    assert done.count("rewritten_data_files_count") == len(tables)
    after = snapshots()
    assert {table for table in tables if len(after[table] & before[table]) > 1 or len(after[table]) > 2} == set()
    assert not [orphan for orphan in orphans if orphan.exists()]
    assert content() == written
    said = shell(held.replace("events", "sensors"), home)
    assert re.search(r"^silver\.sensors: nightly-report holds snapshot \d+ until ", said, re.MULTILINE)
    assert "silver.sensors: released" in said
    shell(consume.format(3), home)
    said = shell(own.replace("events", "sensors"), home | {"LAKE_MAINTENANCE_KEEP_HOURS": "0.000001"})
    assert "ops.schema_changes: 1 data file, 0 to compact;" in said
    assert "Nothing was changed." in said
    assert re.search(
        r"^silver\.sensors: data files \d+( → \d)?; .*; snapshots \d+ → 1; 0 orphan files removed\.$",
        said,
        re.MULTILINE,
    )
    assert "Clean: each landed unit is in exactly one table, once." in shell("reader verify", home)


@pytest.mark.all
@pytest.mark.spark
def test_the_commands_of_gold_do_what_the_page_says(walked: tuple[dict[str, str], str], tmp_path: Path) -> None:
    said = shell("\n".join(blocks("docs/gold.md", "sh")).replace("target/", f"{tmp_path}/"), walked[0])
    assert "Rebuilt gold.user_activity from silver.events." in said
    assert "Each window of gold agrees with silver." in said
    assert re.search(r"gold\.user_activity, windows of 1 hour: 3 of \d+ keys, with the greatest event_count", said)
    assert (tmp_path / "user_activity.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.all
@pytest.mark.spark
def test_the_page_about_other_programs_reads_the_lake(walked: tuple[dict[str, str], str], tmp_path: Path) -> None:
    block = next(block for block in blocks("docs/connect.md", "sh") if "connect pyiceberg" in block)
    said = shell(block.replace("target/", f"{tmp_path}/"), walked[0])
    assert "gold.user_activity\n" in said
    assert said.count("'event_id': ") == 5


@pytest.mark.long
@pytest.mark.spark
def test_the_guide_counts_and_rebuilds_silver(walked: tuple[dict[str, str], str]) -> None:
    """The last test with this lake: its gold would have to be rebuilt, too."""
    counts, rebuild = (block for block in blocks("docs/guide.md", "sh") if "silver" in block)
    assert re.search(r"639 │ +29 │ +0 │ +0 ", shell(counts, walked[0]))
    assert "Rebuilt silver.events" in shell(rebuild, walked[0])
    assert "639" in shell(counts.partition("\n")[2], walked[0])


@pytest.mark.all
@pytest.mark.spark
def test_the_commands_of_sensors_do_what_the_page_says(tmp_path: Path) -> None:
    (script,) = blocks("docs/sensors.md", "sh")
    report = tmp_path / "report.json"
    home = {"LAKE_HOME": str(tmp_path / "lake"), "LAKE_SPARK_UI_PORT": "0"}
    output = shell(script.replace("target/sensors.json", str(report)), home)
    assert "out_of_range" in output
    assert "sensors: device-00001; 2026-11-21" in output
    assert "Clean: each landed unit is in exactly one table, once." in output
    assert "Each window of gold agrees with silver." in output
    made = json.loads(report.read_text())
    landed = shell('reader sql "select count(*) n from silver.sensors" --format json', home)
    assert json.loads(landed) == [{"n": made["expected"]["bronze"]}]
    (product,) = blocks("docs/sensors.md", "yaml")
    assert product == (ROOT / "gold" / "sensor_samples.yaml").read_text()
    (alert,) = blocks("docs/sensors.md", "json")
    assert json.loads(alert)["id"] == f"{json.loads(alert)['_source']}/0"


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.s3
def test_the_guide_runs_on_s3(minio: Any, tmp_path: Path) -> None:
    (block,) = [block for block in blocks("docs/guide.md", "sh") if "AWS_ENDPOINT_URL" in block]
    client = s3_client(minio.settings())
    for bucket in re.findall(r"s3://([a-z]+)", block):
        if bucket not in {found["Name"] for found in client.list_buckets()["Buckets"]}:
            client.create_bucket(Bucket=bucket)
    for name, value in minio.environment().items():
        block = re.sub(rf"^export {name}=.*$", f"export {name}={value}", block, flags=re.MULTILINE)
    output = shell(block, {"LAKE_HOME": str(tmp_path / "lake"), "LAKE_SPARK_UI_PORT": "0"})
    assert "1000" in output


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.s3
def test_the_page_about_an_existing_bucket_reads_it_with_its_policy(minio: Any, tmp_path: Path) -> None:
    page = "docs/existing-bucket.md"
    (policy,), root = blocks(page, "json"), minio.settings()
    client = s3_client(root)
    client.create_bucket(Bucket="acme-raw")
    for key, value in {"exports/": b"", "exports/2026/a b+%.json": event(1), "exports/x.parquet": b"PAR1"}.items():
        client.put_object(Bucket="acme-raw", Key=key, Body=value)
    client.put_object(Bucket="acme-raw", Key="private/other.json", Body=event(2))
    keys = boto3.client(
        "sts",
        endpoint_url=root.endpoint_url,
        aws_access_key_id=root.access_key_id,
        aws_secret_access_key=root.secret_access_key.get_secret_value(),
        region_name=root.region,
    ).assume_role(RoleArn="arn:aws:iam::1:role/reader", RoleSessionName="reader", Policy=policy)["Credentials"]
    (script,) = [block for block in blocks(page, "sh") if "--source s3://acme-raw/exports/" in block]
    own = {
        "LAKE_SOURCE_ENDPOINT_URL": root.endpoint_url,
        "LAKE_SOURCE_ACCESS_KEY_ID": keys["AccessKeyId"],
        "LAKE_SOURCE_SECRET_ACCESS_KEY": keys["SecretAccessKey"],
    }
    for name, value in own.items():
        script, changed = re.subn(rf"^export {name}=.*$", f"export {name}={value}", script, flags=re.MULTILINE)
        assert changed == 1
    environment = {"LAKE_SOURCE_SESSION_TOKEN": keys["SessionToken"], "LAKE_SPARK_UI_PORT": "0"}
    output = shell(script, environment | {"LAKE_HOME": str(tmp_path / "lake")})
    assert "Clean: each landed unit is in exactly one table, once." in output
    assert "ignored 1 file of other formats by their names (such as .parquet)." in output
    assert "2026/a b+%25.json" in output
    # The key can neither write nor remove, nor see the other objects.
    assert "other.json" not in output
    assert len(client.list_objects_v2(Bucket="acme-raw", Prefix="exports/")["Contents"]) == 3


def test_the_collector_page_sends_events_as_it_says(kafka: KafkaServer, tmp_path: Path) -> None:
    page = "docs/collector.md"
    topics, run, new_key = blocks(page, "sh")
    assert run == "collector run\n"
    environment = {"LAKE_COLLECTOR_ORIGINS": "https://shop.example"}
    assert shell(topics.replace("127.0.0.1:9092", kafka.bootstrap_servers), environment) == ""
    servers = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
    with Collector(tmp_path, environment | servers) as running:
        running.ready()
        here = f"127.0.0.1:{running.port}"
        said = []
        for block in blocks(page, "console"):
            command, expected = block.removeprefix("$ ").splitlines()
            said.append((shell(command.replace("127.0.0.1:8080", here), {}), expected))
        # Another test may have sent events before.
        numbers = re.compile(r'("partition"|"offset"):\d+')
        assert [numbers.sub("", found) for found, _ in said] == [numbers.sub("", expected) for _, expected in said]
        (python,) = blocks(page, "python")
        (tmp_path / "send.py").write_text(python.replace("127.0.0.1:8080", here))
        receipts = ast.literal_eval(shell(f"python {tmp_path}/send.py", {}))
        assert [receipt["topic"] for receipt in receipts] == ["acme.clickstream.raw.events"]
        # A browser's request for the page's beacon.
        (beacon_page,) = blocks(page, "html")
        assert (
            'sendBeacon("http://127.0.0.1:8080/collect", new Blob([JSON.stringify(post)], { type: "text/plain" })'
            in beacon_page
        )
        post = [{"id": 4_294_967_295, "type": "page_view", "event": {"page": "/", "referrer": "", "timestamp": ""}}]
        beacon = running.post(post, content_type="text/plain", origin="https://shop.example")
        assert beacon.status == 202
        statuses = re.findall(r"^\| (\d{3}) \|", (ROOT / page).read_text(), re.MULTILINE)
        assert len(statuses) >= 5
        responses = running.get("/openapi.json").json["paths"]["/collect"]["post"]["responses"]
        assert {*statuses} <= {*responses, "401"}  # which is described if keys are required
    assert re.fullmatch(r"key:  \S+\nline: shop \S+\n", shell(new_key, {}))


@pytest.mark.long
@pytest.mark.spark
def test_the_page_about_kafka_reads_a_topic(kafka: KafkaServer, tmp_path: Path) -> None:
    kafka.new_topic(name="incoming")
    send(kafka, "incoming", [event(1), b"[%b, {}]" % event(2)], key=b"k")
    script = "\n".join(blocks("docs/kafka.md", "sh")).replace("localhost:9092", kafka.bootstrap_servers)
    script = script.replace("target/", f"{tmp_path}/") + "\n".join(blocks("docs/sinks.md", "sh"))
    output = shell(script, {"LAKE_HOME": str(tmp_path / "lake"), "LAKE_SPARK_UI_PORT": "0"})
    assert f"incoming/0/{1:019}" in output
    assert json.loads((tmp_path / "report.json").read_bytes())["kafka"]["partitions"]["0"]["last"] > "incoming/0/"
    assert "Clean: each landed unit is in exactly one table, once." in output
    kept = {message.key() for message in received(kafka, "events.silver")}
    assert {b"e1", b"e2"} < kept
    assert {b"lakeproof-reasons"} < {name.encode() for name, _ in received(kafka, "events.dead")[0].headers() or []}


@pytest.mark.long
@pytest.mark.spark
def test_the_page_about_modes_keeps_an_event_once(kafka: KafkaServer, tmp_path: Path) -> None:
    (settings,) = blocks("docs/modes.md", "yaml")
    (ROOT / "docs/modes/dedupe.yaml").read_text().index(settings.partition("parquet")[0])  # the file has these fields
    script = "\n".join(blocks("docs/modes.md", "sh")).replace("localhost:9092", kafka.bootstrap_servers)
    script = script.replace("target/", f"{tmp_path}/")
    sinks = {f"LAKE_{name.upper()}_PARQUET": str(tmp_path / "lake" / name) for name in ("dedupe", "windows")}
    output = shell(script, {"LAKE_HOME": str(tmp_path / "lake"), "LAKE_SPARK_UI_PORT": "0", **sinks})
    assert output == "".join(blocks("docs/modes.md", "csv"))
    assert len(messages(kafka.bootstrap_servers, "deduped-events")) == 1
    assert len(messages(kafka.bootstrap_servers, "mode-b-aggregates")) == 1


@pytest.mark.long
@pytest.mark.spark
def test_the_page_about_the_clickstream_keeps_its_receipts(kafka: KafkaServer, tmp_path: Path) -> None:
    page = "docs/clickstream.md"
    environment = {
        "LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "LAKE_HOME": str(tmp_path / "lake"),
        "LAKE_SPARK_UI_PORT": "0",
        "LAKE_COLLECTOR_TOPIC": "documented.events",
        "LAKE_COLLECTOR_PROBE_TOPIC": "documented.probes",
    }
    (console,) = blocks(page, "console")
    (python,) = blocks(page, "python")
    produce, consume, gold, sessions, verify = blocks(page, "sh")
    with Collector(tmp_path, environment) as running:
        running.ready()

        def here(text: str) -> str:
            return text.replace("127.0.0.1:8080", f"127.0.0.1:{running.port}")

        command, expected = console.removeprefix("$ ").splitlines()
        said, due = json.loads(shell(here(command), {})), json.loads(expected)
        assert said["receipts"][0].keys() == due["receipts"][0].keys()
        receipts = tmp_path / "receipts.jsonl"
        receipts.write_text(json.dumps(said) + "\n")
        (tmp_path / "send.py").write_text(here(python).replace("receipts.jsonl", str(receipts)))
        shell(f"python {tmp_path}/send.py", {})
        produce = produce.replace("receipts.jsonl", str(receipts)).replace("report.json", f"{tmp_path}/report.json")
        shell(produce, environment | {"LAKE_COLLECTOR_PORT": str(running.port)})
    report = json.loads((tmp_path / "report.json").read_text())
    bronze, dead = report["expected"]["bronze"], sum(report["expected"]["dead_letters"].values())
    assert (report["events"], bronze + dead, report["http"]["repeated"]) == (2000, 2000, 0)
    consumed = shell(consume, environment)
    assert all(word in consumed for word in ("/products/1", "/cart", "correlation_id"))
    assert re.search(r"12:02:00.* /products/1 +│ +1 │ +1 ", shell(gold, environment))
    assert re.search(r"12:00:00.* v1 +│ +3 │ +(NULL)? +│ / +│ /cart ", shell(sessions, environment))
    found = shell(verify.replace("receipts.jsonl", str(receipts)), environment)
    counts = dict(re.findall(r"clickstream +│ (kept|duplicate|dead letter) +│ +([0-9,]+) ", found))
    outcomes = {name: int(count.replace(",", "")) for name, count in counts.items()}
    assert outcomes["kept"] + outcomes["duplicate"] == 3 + bronze
    assert outcomes["dead letter"] == 1 + dead
    assert "Each receipt is in one table, once." in " ".join(found.split())
    latest = messages(kafka.bootstrap_servers, "acme.clickstream.latest.events")
    assert len({message.key for message in latest}) == len(latest) == outcomes["kept"]
    values = [json.loads(message.value) for message in latest]
    assert [value["correlation_id"].encode() for value in values] == [message.key for message in latest]
    assert {"/products/1", "/cart"} <= {value["event"]["page"] for value in values}
    assert len(messages(kafka.bootstrap_servers, "acme.clickstream.dead.events")) == outcomes["dead letter"]
    listed = re.findall(
        r"^\| ([a-z ,]+) \| (?:the event is|in |not in|of another)", (ROOT / page).read_text(), re.MULTILINE
    )
    named = {name for line in listed for name in line.split(", ")} - {"outcome"}
    assert named == {*Outcome} - {Outcome.BRONZE}


def test_the_guide_has_the_settings_as_the_model_describes_them() -> None:
    marked = re.search(
        r"^<!-- settings: made by docs/settings.sh -->\n(.*?)^<!-- settings: end -->$",
        (ROOT / "docs/guide.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert marked, "no marks"
    assert marked[1] == as_markdown(), "run docs/settings.sh"


def test_every_block_in_the_docs_is_held_to_by_a_test() -> None:
    """tests/blocks.csv names each block's test. Add a new block after its test has been seen to fail."""
    found = Counter(
        (str(document.relative_to(ROOT)), language)
        for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        for language in re.findall(r"^ *```(\w+)\n", document.read_text(), re.MULTILINE)
    )
    listed: Counter[tuple[str, str]] = Counter()
    with (ROOT / "tests" / "blocks.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            listed[row["document"], row["language"]] += int(row["blocks"])
            path, _, name = row["test"].partition("::")
            source = ast.parse((ROOT / path).read_text())
            functions = {node.name for node in source.body if isinstance(node, ast.FunctionDef)}
            assert name in functions, row
    assert listed == found


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: its headings, as spelled by GitHub."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_in_the_docs_leads_somewhere() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken, others = [], set()
    for document in documents:
        for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
            path, _, anchor = target.partition("#")
            where = document.parent / path if path else document
            if "://" in target:
                others.add(target)
            elif not where.exists() or (anchor and anchor not in anchors(where)):
                broken.append(f"{document.relative_to(ROOT)}: {target}")
    assert broken == []
    # Nothing is fetched: the other addresses were checked by hand, with time and method on record.
    assert [target for target in others if not re.fullmatch(r"https://[\w.-]+\.[a-z]+(/[\w./%~-]*)?", target)] == []
    with (ROOT / "tests" / "links.csv").open(encoding="utf-8", newline="") as file:
        assert {row["address"] for row in csv.DictReader(file) if row["checked"] and row["how"]} == others
    tests = re.findall(r"`(tests/[\w/.]+)`", (ROOT / "docs/guarantees.md").read_text())
    assert tests
    assert [path for path in tests if not (ROOT / path).exists()] == []


def test_every_table_in_the_docs_is_one_table() -> None:
    """A row outside its table, or with an unescaped ``|``, is shown as text."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            rows = table.splitlines()
            assert len(rows) > 1, (page, table)
            assert re.fullmatch(r"\|( ?:?-+:? ?\|)+", rows[1]), (page, table)
            for row in rows:
                assert len(re.findall(r"(?<!\\)\|", row)) == rows[1].count("|"), (page, row)


def test_a_reader_of_the_readme_comes_to_every_page() -> None:
    found, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        found.add(page)
        linked = re.findall(r"\]\(([^)\s#:]+\.md)[)#]", page.read_text())
        todo += [path for name in linked if (path := (page.parent / name).resolve()) not in found]
    pages = {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {*(ROOT / "docs/benchmarks/notes").glob("*.md")}
    assert pages - found == set()
    listed = set(re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (ROOT / "docs/decisions/README.md").read_text()))
    assert listed == {path.name for path in (ROOT / "docs/decisions").glob("0*.md")}


def test_what_the_comparison_says_of_others_has_a_source() -> None:
    table = re.search(r"^## How it compares\n.*?\n\n(\|.*?)\n\n", (ROOT / "docs/why.md").read_text(), re.M | re.S)
    assert table
    header, _, *rows = (line.strip("|").split("|") for line in table[1].splitlines())
    cells = [
        (name.strip(), row[0].strip(), cell) for row in rows for name, cell in zip(header[2:], row[2:], strict=True)
    ]
    assert len(cells) > 30
    # These names need no further explanation.
    plain = {"Databricks", "Spark", "Hudi", "anything", "what Spark reads", "what Spark writes"}
    assert [cell for cell in cells if "](https://" not in cell[2] and cell[2].strip() not in plain] == []


def test_the_architecture_names_modules_that_exist() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    named = set(re.findall(r"`((?:collector|consumer|lakeproof|producer|reader|tests)/[\w/.]*)`", page))
    assert len(named) > 20
    assert [path for path in sorted(named) if not ((ROOT / "src" / path).exists() or (ROOT / path).exists())] == []
    rooms = {path.name for path in (ROOT / "src/consumer").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert {room for room in rooms if f"`consumer/{room}/`" not in page} == set()
