"""The output of `lakeproof connect` runs as it is: on the lake's own catalog, and through `reader serve`."""

import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import nbformat
import pytest
from tests.lakes import changed
from tests.rest_login import SECRET, LoginProxy
from tests.servers import PATIENCE, free_port

from lakeproof.connect.snippets import Client, snippet
from lakeproof.settings import Settings, settings_of
from reader.rest_facade import serve_catalog

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[2]
TOKEN = "a-token-for-the-tests"
Environment = Callable[[Settings], dict[str, str]]
WRITES = """
spark.sql("CREATE TABLE lake.bronze.updated (id INT, what STRING) TBLPROPERTIES ("
    "'format-version' = '3', 'write.delete.mode' = 'merge-on-read')")
spark.sql("INSERT INTO lake.bronze.updated SELECT id, 'as it was' FROM range(10)")
spark.sql("DELETE FROM lake.bronze.updated WHERE id % 2 = 0")
"""
REFUSED = """
try:
    spark.sql("DROP TABLE served.bronze.updated")
except Exception as error:
    print("refused:", error)
"""


@contextmanager
def serving(settings: Settings, environment: Environment) -> Iterator[dict[str, str]]:
    """Run `reader serve`; yield the environment of its clients."""
    own = environment(settings) | {"LAKE_SERVE_TOKEN": TOKEN, "LAKE_SERVE_PORT": str(settings.serve.port)}
    with subprocess.Popen(
        [sys.executable, "-m", "reader", "serve"], env=own, cwd=settings.home, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout
        assert f"at http://127.0.0.1:{settings.serve.port}." in server.stdout.readline()
        try:
            yield own
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(120) == 0


@pytest.fixture(scope="module")
def served(local_lake: Settings, reader_environment: Environment) -> Iterator[tuple[Settings, dict[str, str]]]:
    settings = changed(local_lake, LAKE_SERVE_PORT=free_port())
    with serving(settings, reader_environment) as environment:
        yield settings, environment


def run(environment: dict[str, str], *command: str | Path, text: str | None = None, code: int = 0) -> str:
    done = subprocess.run(
        command, env=environment, input=text, capture_output=True, text=True, timeout=120, cwd=environment["HOME"]
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def with_duckdb_extensions(environment: dict[str, str]) -> dict[str, str]:
    """Return an environment with a home that has DuckDB's extensions, since the tests have no network."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    folder = Path(environment["HOME"]) / ".duckdb" / "extensions" / f"v{duckdb.__version__}" / f"linux_{machine}"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("httpfs", "avro", "iceberg"):
        spec = find_spec(f"duckdb_extension_{name}")
        assert spec
        assert spec.submodule_search_locations
        (found,) = Path(spec.submodule_search_locations[0]).glob("extensions/*/*.duckdb_extension")
        (folder / found.name).unlink(missing_ok=True)
        (folder / found.name).symlink_to(found)
    return environment


def shell_of_duckdb(environment: dict[str, str], script: str, code: int = 0) -> str:
    return run(with_duckdb_extensions(environment), BIN / "duckdb", "-csv", text=script, code=code)


def test_pyiceberg_reads_and_writes_with_the_lakes_own_catalog(lake: Settings, reader_environment: Environment) -> None:
    environment = reader_environment(lake)
    text = snippet(lake, Client.PYICEBERG, "bronze.events", served=False)
    output = run(environment, sys.executable, "-c", text)
    assert "dead_letters.events\n" in output
    assert output.count("'user_id': 'u") == 3
    # A partitioned table: with the packages named in the snippet, PyIceberg can write to one, too.
    writes = "table = catalog.load_table('bronze.events')\ntable.append(table.scan().to_arrow())\n"
    copied = (
        "print('rows', table.refresh().scan().count(), table.spec())\ntable.manage_snapshots().rollback_to_snapshot("
    )
    undone = copied + "table.snapshots()[-2].snapshot_id).commit()\n"
    assert "rows 6" in run(environment, sys.executable, "-c", text + writes + undone)


@pytest.mark.all
def test_a_notebook_reads_the_lake(local_lake: Settings, reader_environment: Environment, tmp_path: Path) -> None:
    text = snippet(local_lake, Client.JUPYTER, "bronze.events", served=False)
    notebook = tmp_path / "lake.ipynb"
    notebook.write_text(text)
    nbformat.validate(nbformat.read(notebook, as_version=4))
    run(reader_environment(local_lake), BIN / "jupyter-execute", "--inplace", notebook)
    outputs = [output for cell in json.loads(notebook.read_text())["cells"] for output in cell.get("outputs", [])]
    assert "│     3 │" in "".join(outputs[-1]["data"]["text/plain"])


def test_duckdb_and_pyiceberg_read_what_is_served(served: tuple[Settings, dict[str, str]]) -> None:
    settings, environment = served
    script = snippet(settings, Client.DUCKDB, "bronze.events", served=False)
    assert TOKEN not in script
    output = shell_of_duckdb(environment, script + "SELECT count(*) AS n FROM lake.dead_letters.events;\n")
    assert "bronze,events\n" in output
    assert output.count(",purchase,") == 3
    assert output.endswith("n\n3\n")
    text = snippet(settings, Client.PYICEBERG, "bronze.events", served=True)
    output = run(environment, sys.executable, "-c", text)
    assert output.count("'user_id': 'u") == 3


@pytest.mark.all
@pytest.mark.s3
def test_what_is_served_may_be_on_s3(s3_lake: Settings, reader_environment: Environment) -> None:
    settings = changed(s3_lake, LAKE_SERVE_PORT=free_port())
    with serving(settings, reader_environment) as environment:
        script = snippet(settings, Client.DUCKDB, "bronze.events", served=True)
        assert settings.s3.secret_access_key
        assert settings.s3.secret_access_key.get_secret_value() not in script
        assert shell_of_duckdb(environment, script).count(",purchase,") == 3
        # The server tells a client where S3 is; the keys are the client's own.
        keys = {name: environment[f"AWS_{name}"] for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")}
        answer = get(settings, "/v1/config")
        assert settings.s3.endpoint_url in answer
        assert not [key for key in keys.values() if key in answer]
        text = snippet(settings, Client.PYICEBERG, "bronze.events", served=True)
        assert run(environment, sys.executable, "-c", text).count("'user_id': 'u") == 3


def get(settings: Settings, path: str, token: str = TOKEN, method: str = "GET") -> str:
    url = f"http://127.0.0.1:{settings.serve.port}{path}"
    # The address is our own.
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return f"{error.code} {json.load(error)['error']}"


def test_only_who_has_the_token_reads_and_nobody_writes(served: tuple[Settings, dict[str, str]]) -> None:
    settings, environment = served
    table = "/v1/namespaces/bronze/tables/events"
    for token in ("", "guess", f"{TOKEN}x", "é"):
        assert get(settings, table, token=token).startswith("401 {'message': 'expected the token")
        assert get(settings, table, token=token, method="POST").startswith("401")
    for method in ("POST", "PUT", "DELETE"):
        assert get(settings, table, method=method).startswith("405 {'message': 'This catalog is read-only")
    assert get(settings, "/v1/namespaces/bronze/tables/nope").startswith("404")
    assert json.loads(get(settings, "/v1/namespaces?parent=bronze")) == {"namespaces": []}
    script = snippet(settings, Client.DUCKDB, "bronze.events", served=True)
    said = shell_of_duckdb(environment, script + "CREATE TABLE lake.bronze.mine (a INT);\n", code=1)
    assert "This catalog is read-only: only lakeproof writes." in said
    wrong = environment | {"LAKE_SERVE_TOKEN": "another-token-here"}
    assert "Unauthorized_401" in shell_of_duckdb(wrong, script, code=1)


@pytest.mark.all
def test_it_makes_a_token_and_says_what_is_wrong_with_an_address(
    served: tuple[Settings, dict[str, str]], reader_environment: Environment, local_lake: Settings
) -> None:
    settings, _ = served
    environment = reader_environment(local_lake)
    port = {"LAKE_SERVE_PORT": str(settings.serve.port)}
    said = run(environment | port, sys.executable, "-m", "reader", "serve", code=3)
    assert said.startswith(f"Error: Cannot listen on 127.0.0.1:{settings.serve.port}: Address already in use.\n  Stop")
    short = run(environment | {"LAKE_SERVE_TOKEN": "short"}, sys.executable, "-m", "reader", "serve", code=2)
    assert "LAKE_SERVE_TOKEN: expected at least 16" in short
    assert "short." not in short
    with subprocess.Popen(
        [sys.executable, "-m", "reader", "serve"],
        env=environment | {"LAKE_SERVE_PORT": "0"},
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout
        address = server.stdout.readline().split(" at ")[1].split(". ")[0]
        token = server.stdout.readline().strip().partition("export LAKE_SERVE_TOKEN=")[2]
        on = changed(settings, LAKE_SERVE_PORT=int(address.rpartition(":")[2]))
        assert "bronze" in get(on, "/v1/namespaces", token=token)
        server.send_signal(signal.SIGINT)
        assert server.wait(120) == 0


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.s3
def test_spark_writes_and_reads_and_others_read_its_deletion_vectors(
    s3_lake: Settings, reader_environment: Environment, spark_jars: Path
) -> None:
    settings = changed(s3_lake, LAKE_SERVE_PORT=free_port(), LAKE_JARS=spark_jars)
    with serving(settings, reader_environment) as environment:
        own = snippet(settings, Client.SPARK, "bronze.events", served=False)
        # In the same session, as a catalog with another name.
        others = snippet(settings, Client.SPARK, "bronze.updated", served=True)
        others = others.replace("spark.sql.catalog.lake", "spark.sql.catalog.served").replace(
            "lake.bronze", "served.bronze"
        )
        output = run(environment, sys.executable, "-c", own + WRITES + others + REFUSED)
        assert len(re.findall(r"\| *u\d\|", output)) == 3
        assert output.count("|as it was|") == 5
        assert re.search(r"refused: .*Server does not support endpoint: DELETE", output, re.DOTALL), output[-3000:]
        odd = "SELECT sum(id) AS s, count(*) AS n FROM lake.bronze.updated;\n"
        script = snippet(settings, Client.DUCKDB, "bronze.updated", served=True)
        assert shell_of_duckdb(environment, script + odd).endswith("s,n\n25,5\n")
        text = snippet(settings, Client.PYICEBERG, "bronze.updated", served=True)
        assert run(environment, sys.executable, "-c", text).count("'what': 'as it was'") == 5


@pytest.mark.long
@pytest.mark.spark
def test_jdbc_reads_the_lake(local_lake: Settings, reader_environment: Environment, spark_jars: Path) -> None:
    port = free_port()
    environment = reader_environment(local_lake) | {"JDBC_PORT": str(port), "PATH": f"{BIN}:{os.environ['PATH']}"}
    script = snippet(changed(local_lake, LAKE_JARS=spark_jars), Client.JDBC, "bronze.events", served=False)
    log = local_lake.home / "jdbc.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            ["sh", "-c", script], env=environment, stdout=output, stderr=output, start_new_session=True
        ) as server,
    ):
        try:
            deadline = time.monotonic() + PATIENCE
            while not answers(port):
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
            query = "SELECT count(*) AS n, min(user_id) AS first FROM lake.bronze.events"
            found = run(environment, BIN / "beeline", "-u", f"jdbc:hive2://127.0.0.1:{port}", "-e", query)
            assert "| 3  | u0     |" in found
        finally:
            os.killpg(server.pid, signal.SIGTERM)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_secrets_are_references(s3_lake: Settings) -> None:
    secret = s3_lake.s3.secret_access_key
    assert secret
    settings = changed(
        s3_lake,
        LAKE_CATALOG_URI="postgresql://me:hush%40now@db:5432/lake",
        AWS_SECRET_ACCESS_KEY="it's a secret",
        AWS_SESSION_TOKEN="session-secret",
        LAKE_SERVE_TOKEN="serve-secret-serve-secret",
    )
    for client in Client:
        for served in (False, True):
            if client is Client.JDBC and served:
                continue
            text = snippet(settings, client, "bronze.events", served=served)
            for hidden in ("hush", "secret'", 'secret"', "a secret", "session-secret", "serve-secret"):
                assert hidden not in text, (client, served)
            assert "AWS_SECRET_ACCESS_KEY" in text
            assert ("LAKE_SERVE_TOKEN" if served or client is Client.DUCKDB else "PGPASSWORD") in text


@pytest.mark.all
@pytest.mark.parametrize("kind", ["credential", pytest.param("token", marks=pytest.mark.long)])
def test_a_login_at_a_rest_catalog_is_a_reference(
    local_lake: Settings, reader_environment: Environment, kind: str
) -> None:
    with serve_catalog(local_lake, []) as endpoint, closing(LoginProxy(endpoint, seconds=600)) as login:
        own = login.settings | {"LAKE_CATALOG_URI": login.uri + urlsplit(endpoint).path}
        if kind == "token":
            of_credential = ("LAKE_CATALOG_CREDENTIAL", "LAKE_CATALOG_OAUTH2_URI", "LAKE_CATALOG_SCOPE")
            own |= {"LAKE_CATALOG_TOKEN": login.new_token()} | dict.fromkeys(of_credential)
        settings = changed(local_lake, LAKE_WAREHOUSE=None, **own)
        name = f"LAKE_CATALOG_{kind.upper()}"
        environment = reader_environment(settings) | {name: own[name]}
        texts = {client: snippet(settings, client, "bronze.events", served=False) for client in Client}
        for text in texts.values():
            assert own[name] not in text
            assert SECRET not in text
            assert name in text
        assert shell_of_duckdb(environment, texts[Client.DUCKDB]).count(",purchase,") == 3
        assert run(environment, sys.executable, "-c", texts[Client.PYICEBERG]).count("'user_id': 'u") == 3


def test_the_page_shows_what_is_printed() -> None:
    page = (ROOT / "docs" / "connect.md").read_text()
    home = {"LAKE_HOME": "/home/me/my-lake/lake", "LAKE_JARS": "/home/me/.cache/lakeproof/jars"}
    for client, language in ((Client.PYICEBERG, "python"), (Client.SPARK, "python"), (Client.DUCKDB, "sql")):
        assert f"```{language}\n{snippet(settings_of(home), client, 'silver.events', served=False)}```" in page
