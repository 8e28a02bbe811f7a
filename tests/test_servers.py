"""The servers of the tests serve, keep their data across a stop, and report missing parts if they cannot start."""

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests import servers
from tests.collector.running import wait_for
from tests.selection import first_by_default
from tests.servers import (
    PATIENCE,
    KafkaServer,
    MinioServer,
    PostgresServer,
    RestCatalogServer,
    Server,
    ServerError,
    free_port,
)


@pytest.fixture(params=first_by_default(["minio", "postgres", "rest", "kafka"], 2))
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    starts: dict[str, Callable[[], Server]] = {
        "minio": lambda: MinioServer(tmp_path / "server"),
        "postgres": lambda: PostgresServer(tmp_path / "server"),
        "rest": lambda: RestCatalogServer(tmp_path / "server", f"file://{tmp_path}/warehouse"),
        "kafka": lambda: KafkaServer(tmp_path / "server"),
    }
    with starts[request.param]() as started:
        yield started


def test_a_server_listens_on_the_loopback_only_and_says_why_it_does_not_start(server: Server) -> None:
    listening = [each.laddr.ip for each in server.process.net_connections() if each.status == psutil.CONN_LISTEN]
    assert set(listening) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    assert listening
    port = server.port
    wait_for(server.answers)
    server.stop()
    assert not server.answers()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server.port = taken.getsockname()[1]
        with pytest.raises(ServerError, match=r"did not start:\n(?s:.*)(?i:already in use)"):
            server.start()
    server.port = port
    server.start()
    wait_for(server.answers)


def test_ports_are_given_once_and_are_none_that_clients_get() -> None:
    taken = free_port()
    with socket.socket() as server:
        while not server.getsockname()[1]:  # another process may have the next port
            with suppress(OSError):
                server.bind(("127.0.0.1", free_port() + 1))
        given = [free_port() for _ in range(200)]
        assert server.getsockname()[1] not in given
    assert len({taken, *given}) == len(given) + 1
    first, _last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert max(given) < first


def test_two_workers_of_pytest_share_no_port() -> None:
    first, second = (servers.own_ports(f"gw{number}") for number in range(2))
    assert not set(first) & set(second)
    assert {*first, *second} <= set(servers.own_ports(""))
    assert len(first) == len(second) > 1_000


def test_postgres_asks_for_the_password_and_keeps_its_rows(tmp_path: Path) -> None:
    with PostgresServer(tmp_path) as server:
        uri = server.new_database("p@ss:w/rd%")
        with psycopg.connect(uri) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(uri.replace(f":{urlsplit(uri).password}@", ":wrong@"))
        server.stop()
        server.start()
        with psycopg.connect(uri) as connection:
            assert connection.execute("SELECT one FROM kept").fetchall() == [(1,)]


@pytest.mark.all
def test_a_killed_broker_keeps_its_messages(tmp_path: Path) -> None:
    with KafkaServer(tmp_path) as server:
        topic = server.new_topic(partitions=2)
        producer = Producer({"bootstrap.servers": server.bootstrap_servers})
        producer.produce(topic, "before")
        assert producer.flush(PATIENCE) == 0
        server.kill()
        server.start()
        producer.produce(topic, "after")
        assert producer.flush(PATIENCE) == 0
        consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "unused"})
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
        assert {message.value() for message in consumer.consume(2, timeout=PATIENCE)} == {b"before", b"after"}
        consumer.close()


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("MINIO", MinioServer),
        ("REST_JARS", lambda folder: RestCatalogServer(folder, "file:///nowhere")),
        ("KAFKA_JARS", KafkaServer),
    ],
)
def test_a_server_that_is_missing_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, start: Callable[[Path], Server]
) -> None:
    monkeypatch.setattr(servers, name, tmp_path / "nothing")
    with pytest.raises(ServerError, match="make setup-test"):
        start(tmp_path)


def test_postgres_that_is_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(servers, "find_spec", lambda name: None)
    with pytest.raises(ServerError, match="make setup-test"):
        PostgresServer(tmp_path)
