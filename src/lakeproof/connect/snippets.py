"""One function per client that returns a snippet."""

import json
from collections.abc import Callable, Mapping
from enum import StrEnum

from lakeproof.catalog import (
    CATALOG,
    duckdb_secret,
    duckdb_secret_of,
    pyiceberg_properties,
    quoted,
    rest_login,
    served_properties,
    spark_properties,
    uses_s3,
)
from lakeproof.connect.references import PASSWORD, Variable, has_password, parts, reference, referring, variables
from lakeproof.errors import UsageError
from lakeproof.settings import Settings

_OWN_FILE_IO = "py-io-impl"
_AWKWARD = "#?"
"""Characters at which PyIceberg's file access truncates a path."""
_THRIFT = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"


class Client(StrEnum):
    """A program that can read the lake."""

    PYICEBERG = "pyiceberg"
    SPARK = "spark"
    DUCKDB = "duckdb"
    JUPYTER = "jupyter"
    JDBC = "jdbc"


def snippet(settings: Settings, client: Client, table: str, *, served: bool) -> str:
    """Return the snippet for a client."""
    if client is Client.DUCKDB and not served and settings.catalog.kind == "sql":
        served = True  # DuckDB speaks REST only
    if client is Client.JDBC and served:
        raise UsageError("--served is not for jdbc: Spark's own server is one.", "Leave out --served.")
    return _SNIPPETS[client](settings, table, served)


def _pyiceberg(settings: Settings, table: str, served: bool) -> str:
    lines = [
        f"# {_source(settings, served)}",
        f"# pip install {_packages(settings, served)}",
        *_open_in_python(settings, served),
        "for namespace in catalog.list_namespaces():",
        '    print(*(".".join(name) for name in catalog.list_tables(namespace)), sep="\\n")',
        f'for row in catalog.load_table("{table}").scan(limit=5).to_arrow().to_pylist():',
        "    print(row)",
    ]
    return _text(lines)


def _jupyter(settings: Settings, table: str, served: bool) -> str:
    tables = "[name for namespace in catalog.list_namespaces() for name in catalog.list_tables(namespace)]"
    cells = [
        _cell("markdown", [f"# The lake\n\n{_source(settings, served)}."]),
        _cell("code", _open_in_python(settings, served)),
        _cell("code", [tables]),
        _cell(
            "code",
            [
                f'rows = catalog.load_table("{table}").scan(limit=100_000)',
                'rows.to_duckdb("rows").sql("SELECT count(*) AS rows, count(DISTINCT _source) AS sources FROM rows")',
            ],
        ),
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _spark(settings: Settings, table: str, served: bool) -> str:
    properties = _spark_properties(settings, served)
    lines = [
        f"# {_source(settings, served)}",
        "# PySpark 4.1, with the jars of `lakeproof setup`",
        *_imports(properties),
        "from pyspark.sql import SparkSession",
        "",
        *_dictionary(properties),
        'builder = SparkSession.builder.appName("lake")',
        "for key, value in properties.items():",
        "    builder = builder.config(key, value)",
        "spark = builder.getOrCreate()",
        f'spark.sql("SHOW TABLES IN {CATALOG}.{table.partition(".")[0]}").show()',
        f'spark.table("{CATALOG}.{table}").show(5)',
    ]
    return _text(lines)


def _duckdb(settings: Settings, table: str, served: bool) -> str:
    found = referring(settings)
    s3_secret = duckdb_secret(found)
    secrets = [f"{_sql(s3_secret)};"] if s3_secret else []
    if served:
        properties = served_properties(found)
        token = _sql(quoted(properties["token"]))
        secrets.append(f"CREATE SECRET lake_token (TYPE iceberg, TOKEN {token});")
        attach = f"ATTACH '{CATALOG}' AS {CATALOG} (TYPE iceberg, ENDPOINT '{properties['uri']}', SECRET lake_token);"
    else:
        name = settings.catalog.warehouse if "warehouse" in settings.catalog.model_fields_set else CATALOG
        login = _login_of_duckdb(found)
        if login:
            secrets.append(f"CREATE SECRET lake_login (TYPE iceberg, {', '.join(login)});")
        authorization = "SECRET lake_login" if login else "AUTHORIZATION_TYPE 'none'"
        if found.catalog.sigv4:  # DuckDB finds service and region in the name of the host
            secrets = secrets or [f"{duckdb_secret_of('lake_s3', found.s3)};"]
            authorization = "AUTHORIZATION_TYPE 'sigv4', SECRET lake_s3"
        endpoint = quoted(settings.catalog.uri)
        attach = f"ATTACH {quoted(name)} AS {CATALOG} (TYPE iceberg, ENDPOINT {endpoint}, {authorization});"
    lines = [
        f"-- {_source(settings, served)}",
        "-- For DuckDB's shell, version 1.5 or newer: duckdb -init lake.sql",
        "INSTALL httpfs; LOAD httpfs; INSTALL avro; LOAD avro; INSTALL iceberg; LOAD iceberg;",
        "SET TimeZone = 'UTC';",
        *secrets,
        attach,
        f"SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = '{CATALOG}' ORDER BY ALL;",
        f"SELECT * FROM {CATALOG}.{table} LIMIT 5;",
    ]
    return _text(lines)


def _login_of_duckdb(found: Settings) -> list[str]:
    """Options of DuckDB's secret for a REST catalog; empty without a login."""
    own = found.catalog
    if own.token:
        return [f"TOKEN {_sql(quoted(own.token.get_secret_value()))}"]
    if not own.credential:
        return []
    credential = _sql(quoted(own.credential.get_secret_value()))
    login = rest_login(found)
    return [
        f"CLIENT_ID split_part({credential}, ':', 1)",
        f"CLIENT_SECRET substr({credential}, instr({credential}, ':') + 1)",
        f"OAUTH2_SERVER_URI {quoted(login['oauth2-server-uri'])}",
        *([f"OAUTH2_SCOPE {quoted(own.scope)}"] if own.scope else []),
    ]


def _jdbc(settings: Settings, table: str, _served: bool) -> str:
    properties = _spark_properties(settings, served=False) | {
        "spark.sql.catalogImplementation": "in-memory",
        "spark.ui.enabled": "false",
    }
    lines = [
        f"# {_source(settings, served=False)}",
        "# A script for sh: Spark's Thrift server, for DBeaver, Tableau and others with JDBC or ODBC. Ctrl-C stops it.",
        "# It has no authentication, so it listens on this machine only. To try it:",
        f"#   beeline -u jdbc:hive2://127.0.0.1:10000 -e 'SELECT * FROM {CATALOG}.{table} LIMIT 5'",
        "settings=$(mktemp)",
        "trap 'rm -f \"$settings\"' EXIT",
        'cat >"$settings" <<END',
        *(f"{key} {_heredoc(value)}" for key, value in properties.items()),
        "END",
        f'spark-submit --properties-file "$settings" --class {_THRIFT} spark-internal \\',
        "  --hiveconf hive.server2.thrift.bind.host=127.0.0.1 --hiveconf hive.server2.thrift.port=${JDBC_PORT:-10000}",
    ]
    return _text(lines)


_SNIPPETS: dict[Client, Callable[[Settings, str, bool], str]] = {
    Client.PYICEBERG: _pyiceberg,
    Client.SPARK: _spark,
    Client.DUCKDB: _duckdb,
    Client.JUPYTER: _jupyter,
    Client.JDBC: _jdbc,
}


def _source(settings: Settings, served: bool) -> str:
    found = referring(settings)
    if served:
        return f"The lake through `reader serve`, read-only: {served_properties(found)['uri']}"
    shown = (f"${part.name}" if isinstance(part, Variable) else part for part in parts(found.catalog.uri))
    return f"The lake through its own catalog: {''.join(shown)}"


def _packages(settings: Settings, served: bool) -> str:
    """Packages for PyIceberg; pyiceberg-core writes partitioned tables."""
    if served or settings.catalog.kind == "rest":
        signed = ",rest-sigv4" if settings.catalog.sigv4 and not served else ""
        return f'"pyiceberg[pyarrow{signed}]" pyiceberg-core'
    if settings.catalog.uri.startswith("sqlite:"):
        return '"pyiceberg[pyarrow,sql-sqlite]" pyiceberg-core'
    return '"pyiceberg[pyarrow]" pyiceberg-core sqlalchemy "psycopg[binary]"'


def _open_in_python(settings: Settings, served: bool) -> list[str]:
    """Lines of Python that open the catalog with PyIceberg."""
    found = referring(settings)
    if served:
        properties = served_properties(found)
    else:
        properties = pyiceberg_properties(found)
        if not any(character in settings.catalog.warehouse for character in _AWKWARD):
            properties.pop(_OWN_FILE_IO, None)
        if not uses_s3(settings):
            properties = {key: value for key, value in properties.items() if not key.startswith(("s3.", "client."))}
    needs = ["# The password of Postgres is taken from PGPASSWORD."] if not served and has_password(settings) else []
    if not served and settings.catalog.kind == "sql":
        names = variables([properties["uri"]])
        needs += [f"# In the address, {name} is percent-encoded." for name in names]
    return [
        *_imports(properties),
        "from pyiceberg.catalog import load_catalog",
        "",
        *needs,
        *_dictionary(properties),
        f'catalog = load_catalog("{CATALOG}", **properties)',
    ]


def _spark_properties(settings: Settings, served: bool) -> dict[str, str]:
    """Spark configuration for a session of another program, without checkpoints."""
    found = referring(settings)
    prefix = f"spark.sql.catalog.{CATALOG}"
    if served:
        own = {prefix: "org.apache.iceberg.spark.SparkCatalog", f"{prefix}.cache-enabled": "false"}
        own |= {f"{prefix}.{key}": value for key, value in served_properties(found).items()}
        if uses_s3(settings):
            own |= {f"{prefix}.http-client.type": "urlconnection"}
    else:
        own = {key: value for key, value in spark_properties(found).items() if key.startswith(prefix)}
        if has_password(settings):
            own[f"{prefix}.jdbc.password"] = reference(PASSWORD)
    return {
        "spark.driver.extraClassPath": f"{settings.spark.jars.absolute()}/*",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
    } | own


def _imports(properties: Mapping[str, str]) -> list[str]:
    return ["import os", ""] if variables(list(properties.values())) else []


def _dictionary(properties: Mapping[str, str]) -> list[str]:
    lines = (f"    {_python(key)}: {_python(value)}," for key, value in properties.items())
    return ["properties = {", *lines, "}"]


def _python(text: str) -> str:
    """Convert a text with references to a Python expression."""
    pieces = [
        f'os.environ["{part.name}"]' if isinstance(part, Variable) else json.dumps(part, ensure_ascii=False)
        for part in parts(text)
    ]
    return " + ".join(pieces) or '""'


def _heredoc(text: str) -> str:
    """Escape a value of a properties file for a shell's here document."""
    pieces = []
    for part in parts(text):
        if isinstance(part, Variable):
            pieces.append(f"${{{part.name}:?}}")
        else:
            escaped = part.replace("\\", "\\\\")  # for the file
            pieces.append(escaped.replace("\\", "\\\\").replace("$", "\\$").replace("`", "\\`"))  # for the shell
    return "".join(pieces)


def _sql(statement: str) -> str:
    """Replace the references in a statement by ``getenv``."""
    for name in variables([statement]):
        statement = statement.replace(f"'{reference(name)}'", f"getenv('{name}')")
    return statement


def _cell(kind: str, lines: list[str]) -> dict[str, object]:
    cell: dict[str, object] = {"cell_type": kind, "metadata": {}, "source": "\n".join(lines)}
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
