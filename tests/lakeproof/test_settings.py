from pathlib import Path

import pytest

from lakeproof.catalog import duckdb_secret, pyiceberg_properties, spark_properties, uses_s3
from lakeproof.errors import UsageError
from lakeproof.settings import S3Settings, Settings, load_settings


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_embedded_default(tmp_path):
    settings = load_settings()
    lake = tmp_path / "target" / "lake"
    assert settings.landing_uri == (lake / "landing").as_uri()
    assert settings.warehouse_uri == (lake / "warehouse").as_uri()
    assert settings.checkpoints_uri == (lake / "checkpoints").as_uri()
    assert settings.logs_dir == lake / "logs"
    assert settings.catalog_database == f"sqlite:///{lake}/catalog.db"
    assert settings.landing_log_database == f"sqlite:///{lake}/landing-log.db"
    assert not uses_s3(settings)
    assert duckdb_secret(settings) is None
    assert not lake.exists()  # to look is not to make


def test_home_moves_everything(monkeypatch, tmp_path):
    monkeypatch.setenv("LAKE_HOME", "a lake")
    settings = load_settings()
    assert settings.landing_uri == f"{tmp_path.as_uri()}/a%20lake/landing"
    assert settings.warehouse_uri == f"file://{tmp_path}/a lake/warehouse"  # Iceberg takes it as it stands
    assert settings.logs_dir == tmp_path / "a lake" / "logs"


def test_parts_can_lie_elsewhere(monkeypatch, tmp_path):
    monkeypatch.setenv("LAKE_LANDING", "s3://landing/")
    monkeypatch.setenv("LAKE_WAREHOUSE", "w")
    settings = load_settings()
    assert settings.landing_uri == "s3://landing"
    assert settings.warehouse_uri == (tmp_path / "w").as_uri()
    assert uses_s3(settings)


def test_the_environment_wins_over_the_file_and_empty_is_unset(monkeypatch, tmp_path):
    (tmp_path / ".env").write_text("LAKE_DRIVER_MEMORY=3g\nLAKE_HOME=from-file\nAWS_REGION=eu-west-1\nOTHER=1\n")
    monkeypatch.setenv("LAKE_HOME", "from-environment")
    monkeypatch.setenv("LAKE_CATALOG_URI", "")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "")
    settings = load_settings()
    assert (settings.driver_memory, settings.home) == ("3g", Path("from-environment"))
    assert settings.catalog_uri is None
    assert (settings.s3.endpoint_url, settings.s3.region) == (None, "eu-west-1")


@pytest.mark.parametrize(
    ("name", "value"), [("LAKE_SPARK_UI_PORT", "many"), ("LAKE_CATALOG", "hive"), ("LAKE_SPARK_UI_PORT", "70000")]
)
def test_a_wrong_value_names_its_variable(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=name):
        load_settings()


def test_rest_needs_an_address(monkeypatch):
    monkeypatch.setenv("LAKE_CATALOG", "rest")
    with pytest.raises(UsageError, match="LAKE_CATALOG_URI"):
        _ = load_settings().catalog_database


def test_an_unknown_scheme_is_refused():
    with pytest.raises(UsageError, match="gs://b"):
        uses_s3(Settings(_env_file=None, warehouse="gs://b"))


def test_secrets_do_not_show(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    settings = load_settings()
    assert "hush" not in repr(settings)
    assert "hush" not in settings.model_dump_json()


def test_postgres_is_spelled_three_ways():
    settings = Settings(_env_file=None, catalog_uri="postgresql://me:p%40ss@db:5433/lake")
    assert pyiceberg_properties(settings)["uri"] == "postgresql+psycopg://me:p%40ss@db:5433/lake"
    spark = spark_properties(settings)
    assert spark["spark.sql.catalog.lake.uri"] == "jdbc:postgresql://db:5433/lake"
    assert spark["spark.sql.catalog.lake.jdbc.user"] == "me"
    assert spark["spark.sql.catalog.lake.jdbc.password"] == "p@ss"


def test_s3_is_spelled_three_ways():
    s3 = S3Settings(
        _env_file=None, endpoint_url="https://s3:9000", access_key_id="k", secret_access_key="it's", session_token="t"
    )
    settings = Settings(_env_file=None, warehouse="s3://w", checkpoints="s3://c", s3=s3)
    secret = duckdb_secret(settings)
    assert "SECRET 'it''s'" in secret
    assert "ENDPOINT 's3:9000'" in secret
    assert "USE_SSL true" in secret
    assert pyiceberg_properties(settings)["s3.session-token"] == "t"
    spark = spark_properties(settings)
    assert spark["spark.hadoop.fs.s3a.secret.key"] == "it's"
    assert spark["spark.sql.catalog.lake.s3.path-style-access"] == "true"


def test_a_local_lake_is_not_given_keys_in_spark():
    s3 = S3Settings(_env_file=None, access_key_id="k", secret_access_key="hush")
    assert "hush" not in str(spark_properties(Settings(_env_file=None, s3=s3)))
