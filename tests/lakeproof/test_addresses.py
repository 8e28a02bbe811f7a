"""Texts accepted as a folder, an address or a database, and texts rejected before anything is created there."""

from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from lakeproof.addresses import (
    as_uri,
    database,
    encoded,
    folder,
    folder_or_address,
    sqlalchemy_uri,
    sqlite_path,
    sqlite_uri,
    without_password,
)
from lakeproof.errors import UsageError
from lakeproof.storage.local import local_path

ODD = ["a b", "a#b", "a?b", "a%20b", "100%", "it's", '"quoted"', "é-😀", "[a]*{b}", "c:d", "~", "$x;,&=+@!"]


@pytest.mark.parametrize("name", ODD)
def test_a_folder_may_have_any_other_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert folder(str(path)) == path
    assert folder_or_address(str(path)) == str(path)
    assert local_path(as_uri(str(path))) == path
    assert local_path(encoded(f"file://{path}")) == path
    assert sqlite_path(sqlite_uri(path)) == path
    assert make_url(sqlite_uri(path)).query == {}


@pytest.mark.parametrize(
    "text",
    [
        "a" * 256,
        "é" * 128,
        "/".join(["a" * 200] * 20),
        "a\nb",
        "a\\b",
        "\udcff",
        "~nobody-of-that-name/lake",
        "s3:/bucket",
        "s3:bucket",
        "file:/folder",
        "http:/there",
    ],
)
def test_what_no_file_system_takes_is_refused(text: str) -> None:
    for check in (folder, folder_or_address):
        with pytest.raises(UsageError) as refused:
            check(text)
        assert refused.value.hint
        assert "\n" not in str(refused.value.message)


@pytest.mark.parametrize(
    "text",
    [
        "gs://bucket",
        "s3a://bucket",
        "S3://bucket",
        "s3://",
        "s3:///key",
        "file://folder",
        "file://",
        "s3://a/b?c",
        "s3://a#b",
    ],
)
def test_an_address_that_is_none_is_refused(text: str) -> None:
    for check in (folder, folder_or_address):
        with pytest.raises(UsageError):
            check(text)


@pytest.mark.parametrize("text", ["s3://bucket", "s3://bucket/a/b/", "file:///folder", "file:///a%20b"])
def test_an_address_stays_as_it_is(text: str) -> None:
    assert folder_or_address(text) == text


def test_postgres_has_timeouts_unless_the_address_sets_them() -> None:
    uri = sqlalchemy_uri("sqlite:////a/b.db")
    assert uri == "sqlite:////a/b.db?timeout=60"
    assert sqlalchemy_uri(uri) == uri
    assert sqlite_path(uri) == Path("/a/b.db")
    uri = sqlalchemy_uri("postgresql://u:p@h/d")
    assert uri.startswith("postgresql+psycopg://u:p@h/d?connect_timeout=10&")
    assert sqlalchemy_uri(uri) == uri
    own = sqlalchemy_uri("postgresql://h/d?sslmode=require&tcp_user_timeout=5")
    assert own.startswith("postgresql+psycopg://h/d?sslmode=require&tcp_user_timeout=5&connect_timeout=10&")
    assert own.count("tcp_user_timeout") == 1


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite:////a/b.db",
        "sqlite:///b.db",
        "postgresql://u:p@h:5432/d",
        "postgresql://h/d?sslmode=require",
        "postgresql+psycopg://h/d",
    ],
)
def test_a_database_is_taken(uri: str) -> None:
    assert database(uri) == uri


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "a.db",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite://a/b.db",
        "sqlite:////a?b.db",
        "sqlite:///~/b.db",
        "postgres://h/d",
        "postgresql://h",
        "postgresql:///d",
        "postgresql://u:hush@h:x/d",
        "postgresql://u:hush@[h/d",
    ],
)
def test_what_is_no_database_is_refused_without_its_password(uri: str) -> None:
    with pytest.raises(UsageError) as refused:
        database(uri)
    assert "hush" not in str(refused.value)


def test_passwords_do_not_show() -> None:
    assert without_password("postgresql://me:hush@h/d") == "postgresql://me:***@h/d"
    assert without_password("postgresql://h/d?user=me&password=hush&a=b") == "postgresql://h/d?user=me&password=***&a=b"
    assert without_password("sqlite:////a:b@c/d.db") == "sqlite:////a:b@c/d.db"
