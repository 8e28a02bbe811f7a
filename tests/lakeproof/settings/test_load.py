from pathlib import Path
from urllib.parse import quote

import pytest

from lakeproof.addresses import sqlite_path, without_password
from lakeproof.catalog import duckdb_secret, pyiceberg_properties, spark_properties, uses_s3
from lakeproof.errors import UsageError
from lakeproof.settings import VARIABLES, S3Settings, load_settings, settings_of
from lakeproof.settings.help import settings_in_words


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_embedded_default(tmp_path):
    settings = load_settings()
    lake = tmp_path / "target" / "lake"
    assert settings.landing.uri == (lake / "landing").as_uri()
    assert settings.catalog.warehouse_uri == (lake / "warehouse").as_uri()
    assert settings.state.checkpoints == (lake / "checkpoints").as_uri()
    assert settings.logs == lake / "logs"
    assert settings.catalog.uri == f"sqlite:///{lake}/catalog.db"
    assert settings.state.database == f"sqlite:///{lake}/landing-log.db"
    assert not uses_s3(settings)
    assert duckdb_secret(settings) is None
    assert not lake.exists()  # reading settings creates nothing


def test_home_moves_everything(monkeypatch, tmp_path):
    monkeypatch.setenv("LAKE_HOME", "a lake")
    settings = load_settings()
    assert settings.landing.uri == f"{tmp_path.as_uri()}/a%20lake/landing"
    assert settings.catalog.warehouse_uri == f"file://{tmp_path}/a lake/warehouse"  # Iceberg uses it verbatim
    assert settings.logs == tmp_path / "a lake" / "logs"


def test_parts_can_lie_elsewhere(monkeypatch, tmp_path):
    monkeypatch.setenv("LAKE_LANDING", "s3://landing/")
    monkeypatch.setenv("LAKE_WAREHOUSE", "w")
    settings = load_settings()
    assert settings.landing.uri == "s3://landing"
    assert settings.catalog.warehouse_uri == (tmp_path / "w").as_uri()
    assert uses_s3(settings)


def test_the_environment_wins_over_the_file_and_empty_is_unset(monkeypatch, tmp_path):
    (tmp_path / ".env").write_text("LAKE_DRIVER_MEMORY=3g\nLAKE_HOME=from-file\nAWS_REGION=eu-west-1\nOTHER=1\n")
    monkeypatch.setenv("LAKE_HOME", "from-environment")
    monkeypatch.setenv("LAKE_CATALOG_URI", "")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "")
    settings = load_settings()
    assert (settings.spark.driver_memory, settings.home) == ("3g", Path("from-environment"))
    assert "uri" not in settings.catalog.model_fields_set
    assert (settings.s3.endpoint_url, settings.s3.region) == (None, "eu-west-1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LAKE_SPARK_UI_PORT", "many"),
        ("LAKE_SPARK_UI_PORT", "70000"),
        ("LAKE_CATALOG", "hive"),
        ("LAKE_JUDGE", "rust"),
        ("LAKE_CATALOG_URI", "sqlite://"),
        ("LAKE_LANDING_LOG_URI", "http://there"),
        *((f"LAKE_MAINTENANCE_{name}", "inf") for name in ("EVERY_MINUTES", "KEEP_HOURS", "ORPHAN_HOURS")),
        ("LAKE_MAINTENANCE_KEEP_HOURS", "1e9"),
        ("LAKE_SETTLE_SECONDS", "inf"),
        ("LAKE_KAFKA_TIMEOUT_SECONDS", "inf"),
        ("LAKE_SWEEP_SECONDS", "nan"),
        ("LAKE_HOME", "s3://bucket"),
        ("LAKE_LANDING", "s3:/bucket"),
        *(
            ("LAKE_SPARK_MASTER", value)
            for value in ("local[x]", "local[0]", "local[", "spark://nowhere", "mesos://a:1")
        ),
        *(
            ("LAKE_KAFKA_BOOTSTRAP_SERVERS", value)
            for value in ("kafka", "kafka:", ":9092", "a:9092,b", "a:70000", "::1:9092", "a:9092;b:9092")
        ),
        *(("LAKE_METRICS", value) for value in ("a..b:9108", f"{'a' * 64}:9108", "a:70000")),
        *(
            ("LAKE_SCHEMA_REGISTRY_URL", value)
            for value in ("http://a..b", "http://a/schéma", "http://[::1/a", "http://a:eighty")
        ),
        *(("AWS_ENDPOINT_URL", value) for value in ("minio:9000", "http://a..b", "http://a:99999")),
        ("LAKE_SOURCE_ENDPOINT_URL", "minio:9000"),
        *(("LAKE_DRIVER_MEMORY", value) for value in ("2x", "2gb", "2", "-1g", "511m", "0.5g", "g")),
    ],
)
@pytest.mark.parametrize("in_file", [False, True], ids=["environment", ".env"])
def test_a_wrong_value_names_its_variable(monkeypatch, tmp_path, name, value, in_file):
    if in_file:
        (tmp_path / ".env").write_text(f"{name}={value}\n")
    else:
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=f"^{name}: ") as refused:
        load_settings()
    assert refused.value.hint
    assert "\n" not in refused.value.message
    assert "Input" not in refused.value.message  # a word from pydantic's message


@pytest.mark.parametrize(
    "value",
    [
        *("local", "local[*]", "local[4]", "local[4,2]", "yarn"),
        *("spark://a:7077", "spark://a:1,b:2", "spark://[::1]:1,[fd00::2]:2"),
        *("k8s://https://a", "k8s://https://[fd00::1]:6443/path"),
    ],
)
def test_a_master_that_spark_has(value):
    assert settings_of({"LAKE_SPARK_MASTER": value}).spark.master == value


@pytest.mark.parametrize(
    "value", ["a:9092", "127.0.0.1:1,b.example:2, c_d:3", "[::1]:9092", "SASL_SSL://a:9092,SASL_SSL://b:9092"]
)
def test_addresses_of_brokers_that_kafka_accepts(value):
    assert settings_of({"LAKE_KAFKA_BOOTSTRAP_SERVERS": value}).kafka.bootstrap_servers == value


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("LAKE_HOEM", "Did you mean LAKE_HOME?"),
        ("lake_warehuose", "Did you mean LAKE_WAREHOUSE?"),
        ("LAKE_S3", "S3 is reached by AWS_ENDPOINT_URL"),
        ("LAKE_QWZX", "`lakeproof settings` lists"),
    ],
)
@pytest.mark.parametrize("in_file", [False, True], ids=["environment", ".env"])
def test_an_unknown_name_is_refused(monkeypatch, tmp_path, name, hint, in_file):
    if in_file:
        (tmp_path / ".env").write_text(f"{name}=x\n")
    else:
        monkeypatch.setenv(name, "x")
    with pytest.raises(UsageError, match=f"^{name.upper()} in .* is not a setting") as refused:
        load_settings()
    assert refused.value.hint.startswith(hint)


def test_names_of_the_scripts_and_of_others_are_let_be(monkeypatch):
    for name in ("LAKE_DEMO", "LAKEPROOF_PYTHON", "SALT_LAKE_CITY"):
        monkeypatch.setenv(name, "x")
    load_settings()


def test_text_that_is_not_utf_8_is_refused(monkeypatch, tmp_path):
    (tmp_path / ".env").write_bytes(b"# caf\xe9\n")
    with pytest.raises(UsageError, match=r"\.env is not UTF-8: .* byte 5"):
        load_settings()
    (tmp_path / ".env").unlink()
    monkeypatch.setenv("AWS_REGION", "\udcff")
    with pytest.raises(UsageError, match="AWS_REGION is not UTF-8"):
        load_settings()


def test_a_home_is_found_in_every_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    (tmp_path / ".env").write_text("LAKE_HOME=~/lake\nLAKE_LANDING=~/landing\nLAKE_LOGS=~\n")
    settings = load_settings()
    assert settings.home == tmp_path / "me" / "lake"
    assert settings.landing.uri == (tmp_path / "me" / "landing").as_uri()
    assert settings.logs == tmp_path / "me"


def test_a_database_has_any_name(tmp_path):
    settings = settings_of({"LAKE_HOME": tmp_path / "a b#c?d%20e"})
    for uri, name in ((settings.catalog.uri, "catalog.db"), (settings.state.database, "landing-log.db")):
        assert sqlite_path(uri) == tmp_path / "a b#c?d%20e" / name
    spark = spark_properties(settings)["spark.sql.catalog.lake.uri"]
    assert spark == f"jdbc:sqlite:file:{quote(str(tmp_path / 'a b#c?d%20e' / 'catalog.db'))}"


@pytest.mark.parametrize(("kind", "uri"), [("rest", "sqlite:////a.db"), ("sql", "https://there")])
def test_an_address_of_another_kind_of_catalog_is_refused(kind, uri):
    with pytest.raises(UsageError, match=r"^LAKE_CATALOG_URI: "):
        settings_of({"LAKE_CATALOG": kind, "LAKE_CATALOG_URI": uri})


def test_rest_needs_an_address(monkeypatch):
    monkeypatch.setenv("LAKE_CATALOG", "rest")
    with pytest.raises(UsageError, match=r"^LAKE_CATALOG_URI: .* LAKE_CATALOG is rest") as refused:
        load_settings()
    assert refused.value.hint


def test_every_setting_is_described_once():
    described = settings_in_words()
    assert [setting.variable for setting in described] == list(dict.fromkeys(s.variable for s in described))
    assert {setting.variable for setting in described} == VARIABLES
    assert all(setting.meaning for setting in described)


def test_an_unknown_scheme_is_refused():
    with pytest.raises(UsageError, match="gs://b"):
        uses_s3(settings_of({"LAKE_WAREHOUSE": "gs://b"}))


def test_secrets_do_not_show(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    settings = load_settings()
    assert "hush" not in repr(settings)
    assert "hush" not in settings.model_dump_json()


def test_postgres_is_spelled_three_ways():
    settings = settings_of({"LAKE_CATALOG_URI": "postgresql://me:p%40ss@db:5433/lake"})
    assert pyiceberg_properties(settings)["uri"] == "postgresql+psycopg://me:p%40ss@db:5433/lake"
    spark = spark_properties(settings)
    assert spark["spark.sql.catalog.lake.uri"] == "jdbc:postgresql://db:5433/lake"
    assert spark["spark.sql.catalog.lake.jdbc.user"] == "me"
    assert spark["spark.sql.catalog.lake.jdbc.password"] == "p@ss"


@pytest.mark.parametrize(
    ("address", "jdbc"),
    [
        ("postgresql://db/lake", "jdbc:postgresql://db/lake"),
        ("postgresql://me@[::1]:5433/lake", "jdbc:postgresql://[::1]:5433/lake"),
        ("postgresql://db/lake?sslmode=require", "jdbc:postgresql://db/lake?sslmode=require"),
    ],
)
def test_spark_goes_to_the_same_postgres(address, jdbc):
    spark = spark_properties(settings_of({"LAKE_CATALOG_URI": address}))
    assert spark["spark.sql.catalog.lake.uri"] == jdbc


def test_user_and_password_may_stand_in_the_query():
    spark = spark_properties(settings_of({"LAKE_CATALOG_URI": "postgresql://db/lake?user=me&password=p%40ss"}))
    assert spark["spark.sql.catalog.lake.uri"] == "jdbc:postgresql://db/lake"
    assert spark["spark.sql.catalog.lake.jdbc.user"] == "me"
    assert spark["spark.sql.catalog.lake.jdbc.password"] == "p@ss"


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:p@ss:w/rd%@db/lake",
        "postgresql://me:p@ss@db/lake",
        "postgresql://me:p#ss@db/lake",
        "postgresql://me:p?ss@db/lake",
        "postgresql://me:p[ss@db/lake",
        "postgresql://db:port/lake",
        "mysql://me:pass@db/lake",
        "sqlite://",
    ],
)
def test_what_is_no_address_of_a_database_is_refused_without_its_password(address):
    with pytest.raises(UsageError, match="LAKE_CATALOG_URI") as caught:
        settings_of({"LAKE_CATALOG_URI": address})
    assert "ss" not in caught.value.message.replace("address", "")


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("LAKE_ERASURE_KEY", "hush", "expected a length of at least 16, got"),
        ("LAKE_SERVE_TOKEN", "hush", "expected at least 16"),
        *(
            (variable, "hush:hush\n", "control character")
            for variable in (
                *("LAKE_CATALOG_TOKEN", "LAKE_CATALOG_CREDENTIAL"),
                *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "LAKE_SOURCE_SESSION_TOKEN"),
            )
        ),
    ],
)
def test_a_secret_that_is_refused_is_not_shown(variable, value, expected):
    """Clients show the headers that they refuse: a key with a line break would be in an error and in the log."""
    rest = {"LAKE_CATALOG": "rest", "LAKE_CATALOG_URI": "http://catalog"}
    with pytest.raises(UsageError, match=f"^{variable}: .*{expected}") as refused:
        settings_of(rest | {variable: value})
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("postgresql://me:secret@db/lake", "postgresql://me:***@db/lake"),
        ("postgresql://me:s@cr/t%@db/lake", "postgresql://me:***@db/lake"),
        (
            "postgresql://me@db/lake?password=secret&sslpassword=secret",
            "postgresql://me@db/lake?password=***&sslpassword=***",
        ),
        ("https://me:secret@catalog/", "https://me:***@catalog/"),
        ("sqlite:////a/b@c:d.db", "sqlite:////a/b@c:d.db"),
    ],
)
def test_an_address_is_shown_without_its_password(address, expected):
    assert without_password(address) == expected


def test_a_rest_catalog_is_asked_for_the_warehouse_that_was_named_and_no_other():
    rest = {"LAKE_CATALOG": "rest", "LAKE_CATALOG_URI": "http://catalog"}
    for settings, warehouse in ((settings_of(rest), None), (settings_of({**rest, "LAKE_WAREHOUSE": "prod"}), "prod")):
        assert pyiceberg_properties(settings).get("warehouse") == warehouse
        assert spark_properties(settings).get("spark.sql.catalog.lake.warehouse") == warehouse


def test_where_a_rest_catalog_keeps_its_tables_is_not_known_so_it_may_be_s3():
    s3 = S3Settings(access_key_id="k", secret_access_key="s")
    settings = settings_of({"LAKE_CATALOG": "rest", "LAKE_CATALOG_URI": "http://catalog"}).model_copy(update={"s3": s3})
    assert "KEY_ID 'k'" in duckdb_secret(settings)
    assert spark_properties(settings)["spark.sql.catalog.lake.s3.access-key-id"] == "k"
    assert "spark.sql.catalog.lake.io-impl" not in spark_properties(settings)


def test_s3_is_spelled_three_ways():
    s3 = S3Settings(endpoint_url="https://s3:9000", access_key_id="k", secret_access_key="it's", session_token="t")
    settings = settings_of({"LAKE_WAREHOUSE": "s3://w", "LAKE_CHECKPOINTS": "s3://c"}).model_copy(update={"s3": s3})
    secret = duckdb_secret(settings)
    assert "SECRET 'it''s'" in secret
    assert "ENDPOINT 's3:9000'" in secret
    assert "USE_SSL true" in secret
    assert pyiceberg_properties(settings)["s3.session-token"] == "t"
    spark = spark_properties(settings)
    assert spark["spark.hadoop.fs.s3a.secret.key"] == "it's"
    assert spark["spark.sql.catalog.lake.s3.path-style-access"] == "true"


def test_a_local_lake_is_not_given_keys_in_spark():
    s3 = S3Settings(access_key_id="k", secret_access_key="hush")
    assert "hush" not in str(spark_properties(settings_of({}).model_copy(update={"s3": s3})))


S3_KEY = {"AWS_ACCESS_KEY_ID": "lake", "AWS_SECRET_ACCESS_KEY": "hush"}
SOURCE_KEY = {"LAKE_SOURCE_ACCESS_KEY_ID": "reader", "LAKE_SOURCE_SECRET_ACCESS_KEY": "hush"}
SASL = {
    "LAKE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "LAKE_KAFKA_SASL_USERNAME": "me",
    "LAKE_KAFKA_SASL_PASSWORD": "hush",
}
TLS = {"LAKE_KAFKA_SECURITY_PROTOCOL": "SSL", "LAKE_KAFKA_SSL_CA": "ca"}
CERTIFICATE = {"LAKE_KAFKA_SSL_CERTIFICATE": "c", "LAKE_KAFKA_SSL_KEY": "k", "LAKE_KAFKA_SSL_KEY_PASSWORD": "hush"}
REGISTRY = {
    "LAKE_SCHEMA_REGISTRY_URL": "http://registry",
    "LAKE_SCHEMA_REGISTRY_USERNAME": "me",
    "LAKE_SCHEMA_REGISTRY_PASSWORD": "hush",
}


@pytest.mark.parametrize(
    ("whole", "lacks", "refused"),
    [
        (S3_KEY, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        (S3_KEY, "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY"),
        (S3_KEY | {"AWS_SESSION_TOKEN": "hush"}, " ".join(S3_KEY), "AWS_SESSION_TOKEN"),
        # The secret would be ignored, and the key of the lake sent to somebody else's bucket.
        (SOURCE_KEY | S3_KEY, "LAKE_SOURCE_ACCESS_KEY_ID", "LAKE_SOURCE_SECRET_ACCESS_KEY"),
        (SOURCE_KEY | S3_KEY, "LAKE_SOURCE_SECRET_ACCESS_KEY", "LAKE_SOURCE_SECRET_ACCESS_KEY"),
        (
            SOURCE_KEY | S3_KEY | {"LAKE_SOURCE_SESSION_TOKEN": "hush"},
            " ".join(SOURCE_KEY),
            "LAKE_SOURCE_SESSION_TOKEN",
        ),
        (SASL, "LAKE_KAFKA_SECURITY_PROTOCOL", "LAKE_KAFKA_SASL_USERNAME"),
        (SASL, "LAKE_KAFKA_SASL_USERNAME", "LAKE_KAFKA_SASL_USERNAME"),
        (SASL, "LAKE_KAFKA_SASL_PASSWORD", "LAKE_KAFKA_SASL_PASSWORD"),
        (TLS, "LAKE_KAFKA_SECURITY_PROTOCOL", "LAKE_KAFKA_SSL_CA"),
        (TLS | SASL | CERTIFICATE, "LAKE_KAFKA_SSL_CERTIFICATE", "LAKE_KAFKA_SSL_KEY"),
        (TLS | CERTIFICATE, "LAKE_KAFKA_SECURITY_PROTOCOL", "LAKE_KAFKA_SSL_CA"),
        (TLS | CERTIFICATE, "LAKE_KAFKA_SECURITY_PROTOCOL LAKE_KAFKA_SSL_CA", "LAKE_KAFKA_SSL_CERTIFICATE"),
        (TLS | CERTIFICATE, "LAKE_KAFKA_SSL_KEY", "LAKE_KAFKA_SSL_KEY"),
        (TLS | CERTIFICATE, "LAKE_KAFKA_SSL_CERTIFICATE LAKE_KAFKA_SSL_KEY", "LAKE_KAFKA_SSL_KEY_PASSWORD"),
        (REGISTRY, "LAKE_SCHEMA_REGISTRY_URL", "LAKE_SCHEMA_REGISTRY_USERNAME"),
        (REGISTRY, "LAKE_SCHEMA_REGISTRY_USERNAME", "LAKE_SCHEMA_REGISTRY_PASSWORD"),
    ],
)
def test_half_a_login_is_refused_with_the_variable(whole, lacks, refused):
    settings_of(whole)
    half = {name: value for name, value in whole.items() if name not in lacks.split()}
    with pytest.raises(UsageError, match=rf"^{refused}: it is ") as error:
        settings_of(half)
    assert "hush" not in str(error.value)
