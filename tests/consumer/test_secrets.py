"""Secrets reach the processes that need them, and no others."""

import json
import os
import pickle
import signal
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from pydantic import SecretStr
from pyspark.serializers import CloudPickleSerializer
from tests.chaos.processes import Process, wait_until
from tests.consumer.test_cli import EVENT, environment
from tests.lakes import changed
from tests.messages import send
from tests.selection import only_with_all
from tests.servers import KafkaServer, Minio, PostgresServer, free_port

from consumer.iceberg.scan import Scan
from lakeproof.catalog import pyiceberg_properties, spark_properties
from lakeproof.settings import GROUPS, Settings, export_secrets, settings_of
from lakeproof.storage import open_storage
from reader.connect import connect

SECRETS = {
    "LAKE_CATALOG_URI": "postgresql://me:secret-1@db/lake?sslpassword=secret-2",
    "LAKE_LANDING_LOG_URI": "postgresql://me:secret-3@db/lake",
    "LAKE_KAFKA_SASL_PASSWORD": "secret-4",
    "LAKE_KAFKA_SSL_KEY_PASSWORD": "secret-5",
    "LAKE_SCHEMA_REGISTRY_PASSWORD": "secret-6",
    "LAKE_SERVE_TOKEN": "secret-7-of-sixteen",
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret-8",
    "AWS_SESSION_TOKEN": "secret-9",
    "LAKE_PRODUCER_KEY": "secret-10-of-sixteen",
}
LOGINS = {
    "LAKE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "LAKE_KAFKA_SASL_USERNAME": "me",
    "LAKE_KAFKA_SSL_CERTIFICATE": "certificate.pem",
    "LAKE_KAFKA_SSL_KEY": "key.pem",
    "LAKE_SCHEMA_REGISTRY_URL": "http://registry",
    "LAKE_SCHEMA_REGISTRY_USERNAME": "me",
}
"""What the secrets belong to."""
RECORDING = """
import os
from pyspark.serializers import CloudPickleSerializer
from consumer.cli import main
dumps = CloudPickleSerializer.dumps
def recorded(self, value):
    pickled = dumps(self, value)
    with open(os.environ["PICKLES"], "ab") as file:
        file.write(pickled)
    return pickled
CloudPickleSerializer.dumps = recorded
main()
"""
"""The consumer, which records everything that is sent to tasks."""
PAGES = ("environment/", "jobs/", "SQL/", "StreamingQuery/", "api/v1/applications/{}/environment")
PAGES = (*PAGES, "api/v1/applications/{}/sql?details=true")


def test_pickled_settings_hold_no_secret_and_take_those_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(SECRETS | LOGINS)
    for name in SECRETS:
        monkeypatch.setenv(name, "")  # so that it is restored
    pickled = pickle.dumps(settings)
    assert b"secret-" not in pickled
    there = pickle.loads(pickled)
    assert (there.s3.secret_access_key, there.kafka.sasl_password) == (None, None)
    assert there.state.database == "postgresql://me@db/lake"
    export_secrets(settings)
    assert pickle.loads(pickled) == settings
    assert {name: os.environ[name] for name in SECRETS} == SECRETS


def test_settings_without_secrets_are_those_of_the_pickle_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = settings_of({"LAKE_HOME": "/a"})
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_every_secret_is_known_as_one() -> None:
    for group in GROUPS.values():
        secret = {name for name, field in group.model_fields.items() if SecretStr.__name__ in repr(field.annotation)}
        assert secret <= set(getattr(group, "secrets", ()))


def test_a_pickled_scan_holds_no_secret() -> None:
    from pyiceberg.io import load_file_io

    io = load_file_io(
        {**pyiceberg_properties(settings_of(SECRETS | LOGINS)), "token": "secret-t", "credential": "me:secret-c"}
    )
    metadata: Any = SimpleNamespace()
    scan = Scan("t", metadata, io, {}, metadata, [])
    assert scan.io.properties["s3.secret-access-key"] == "secret-8"
    pickled = CloudPickleSerializer().dumps(scan)
    assert b"secret-" not in pickled
    assert pickle.loads(pickled).io.properties["s3.region"] == "us-east-1"


def test_no_address_that_spark_shows_has_a_secret() -> None:
    properties = spark_properties(settings_of(SECRETS | LOGINS))
    assert "secret-" not in properties["spark.sql.catalog.lake.uri"]
    assert properties["spark.sql.catalog.lake.jdbc.sslpassword"] == "secret-2"


@pytest.mark.all
@pytest.mark.spark
@pytest.mark.s3
@pytest.mark.parametrize("source", ["files", only_with_all("kafka")])
def test_nobody_sees_the_secrets_of_a_run(
    s3_lake_settings: Settings,
    minio: Minio,
    postgres: PostgresServer,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    source: str,
) -> None:
    database, port = postgres.new_database("secret-of-postgres"), free_port()
    settings = changed(s3_lake_settings, LAKE_CATALOG_URI=database, LAKE_LANDING_LOG_URI=database)
    records = [EVENT | {"event_id": str(number)} for number in range(25_000)]  # more than the driver reads itself
    secrets = ["secret-of-postgres", minio.secret_key]
    variables = {"LAKE_CATALOG_URI": database, "LAKE_LANDING_LOG_URI": database, **minio.environment()}
    arguments = ["run", "events", "--trigger", "200 milliseconds"]
    if source == "kafka":
        kafka: KafkaServer = request.getfixturevalue("kafka")
        secrets.append(kafka.password)
        topic = kafka.new_topic()
        variables |= kafka.login
        arguments += ["--data-source", "kafka", "--topic", topic]
        send(kafka, topic, [json.dumps(record).encode() for record in records])
    else:
        storage = open_storage(settings.landing.uri, settings.s3)
        storage.write_new(f"{settings.landing.uri}/events/a.json", json.dumps(records).encode())
    # In a file, so that no process inherits the variables unless the consumer passes them on.
    (tmp_path / ".env").write_text("".join(f"{name}='{value}'\n" for name, value in variables.items()))
    (tmp_path / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.dir {tmp_path.as_uri()}/events\nspark.eventLog.compress false\n"
    )
    (tmp_path / "events").mkdir()
    places = {"LAKE_LANDING": settings.landing.uri, "LAKE_WAREHOUSE": settings.catalog.warehouse_uri}
    own = places | {
        "LAKE_CHECKPOINTS": settings.state.checkpoints,
        "LAKE_GOLD": str(Path(__file__).parents[2] / "gold"),
        "LAKE_SPARK_UI_PORT": str(port),
        "SPARK_CONF_DIR": str(tmp_path),
        "PICKLES": str(tmp_path / "pickles"),
    }
    command = [sys.executable, "-c", f"import os\nos.chdir({str(tmp_path)!r})\n{RECORDING}", *arguments]
    with Process(command, environment(settings) | own, tmp_path / "log") as process:
        lines = set[str]()

        def gold_is_there() -> bool:
            for each in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    lines.add(" ".join(each.cmdline()))
            return bool(process.said("gold micro-batch")) or not process.alive

        assert wait_until(gold_is_there, 180, every=0.02), process.text()
        assert process.alive, process.text()
        pages = "".join(page(port, path) for path in PAGES)
        process.signal_itself(signal.SIGTERM)
        assert process.wait(60) == 0, process.text()
    with connect(settings) as session:
        assert session.sql("SELECT count(*) FROM silver.events").fetchall() == [(len(records),)]
    seen = {
        "command lines": "\n".join(lines),
        "pickles": (tmp_path / "pickles").read_bytes().decode("latin-1"),
        "pages": pages,
        "event log": "".join(path.read_text() for path in (tmp_path / "events").rglob("*") if path.is_file()),
        "spark.log": (settings.logs / "spark.log").read_text(),
        "log": process.text(),
    }
    assert "org.apache.spark.deploy.SparkSubmit" in seen["command lines"]
    assert "jdbc.password" in pages
    assert "jdbc.password" in seen["event log"]
    assert len(seen["pickles"]) > 10_000
    assert not [(where, secret) for where, text in seen.items() for secret in secrets if secret in text]


def page(port: int, path: str) -> str:
    """Return a page of Spark's UI."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(path: str) -> str:
        text: str = opener.open(f"http://127.0.0.1:{port}/{path}", timeout=30).read().decode()
        return text

    (application,) = json.loads(get("api/v1/applications"))
    return get(path.format(application["id"]))
