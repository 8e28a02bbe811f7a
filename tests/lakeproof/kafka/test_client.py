"""Both clients reach the same brokers with the same login; no representation of the settings has secrets."""

from pathlib import Path

import pytest

from lakeproof.errors import UsageError
from lakeproof.kafka.client import client_properties, spark_options
from lakeproof.settings import settings_of

LOGIN = {
    "LAKE_KAFKA_BOOTSTRAP_SERVERS": "b:1,c:2",
    "LAKE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "LAKE_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
    "LAKE_KAFKA_SASL_USERNAME": 'us"er',
    "LAKE_KAFKA_SASL_PASSWORD": 'se\\c"ret',
}


def test_the_default_is_plain() -> None:
    kafka = settings_of({}).kafka
    assert client_properties(kafka)["security.protocol"] == "PLAINTEXT"
    assert spark_options(kafka) == {
        "kafka.bootstrap.servers": "localhost:9092",
        "kafka.security.protocol": "PLAINTEXT",
    }


def test_a_login_is_the_same_for_both(tmp_path: Path) -> None:
    names = {"LAKE_KAFKA_SSL_CA": "ca", "LAKE_KAFKA_SSL_CERTIFICATE": "certificate", "LAKE_KAFKA_SSL_KEY": "key"}
    for name in names.values():
        (tmp_path / name).write_text(f"PEM of {name}")
    files = {name: tmp_path / file for name, file in names.items()}
    kafka = settings_of(LOGIN | files | {"LAKE_KAFKA_SSL_KEY_PASSWORD": "key-pass"}).kafka
    properties, options = client_properties(kafka), spark_options(kafka)
    assert properties["sasl.username"] == 'us"er'
    assert properties["sasl.password"] == 'se\\c"ret'
    assert properties["ssl.ca.location"] == str(tmp_path / "ca")
    assert options["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        r'username="us\"er" password="se\\c\"ret";'
    )
    assert options["kafka.ssl.truststore.certificates"] == "PEM of ca"
    assert options["kafka.ssl.keystore.key"] == "PEM of key"
    assert properties["ssl.key.password"] == options["kafka.ssl.key.password"] == "key-pass"
    assert "key-pass" not in repr(kafka)
    assert '"ret' not in repr(kafka)


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    kafka = settings_of({"LAKE_KAFKA_SECURITY_PROTOCOL": "SSL", "LAKE_KAFKA_SSL_CA": tmp_path / "nothing"}).kafka
    for make in (client_properties, spark_options):
        with pytest.raises(UsageError, match=r"LAKE_KAFKA_SSL_CA: the file .*nothing does not exist"):
            make(kafka)
