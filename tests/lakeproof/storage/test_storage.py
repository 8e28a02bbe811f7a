"""All backends have the same behavior."""

import errno
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError
from tests.answers import answering

from lakeproof.errors import UnavailableError, UsageError
from lakeproof.settings import S3Settings
from lakeproof.storage import Storage, local, open_storage, s3
from lakeproof.storage.errors import FileAbsentError, FileChangedError
from lakeproof.storage.local import local_path
from lakeproof.storage.s3 import S3Storage, check_bucket, s3_client

NO_S3 = S3Settings()


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def root(request, tmp_path):
    if request.param == "local":
        return (tmp_path / "landing").as_uri()
    return f"s3://{request.getfixturevalue('bucket')}/landing"


@pytest.fixture
def storage(root, request) -> Storage:
    s3 = request.getfixturevalue("s3_settings") if root.startswith("s3") else NO_S3
    return open_storage(root, s3)


@pytest.fixture
def name_of(root) -> Callable[[str], str]:
    """Return a function from a name to its URI below the root, spelled as the backend lists it."""
    return lambda name: f"{root}/{quote(name) if root.startswith('file') else name}"


def test_a_root_without_files_is_empty(storage):
    assert list(storage.list()) == []
    assert list(storage.list_recent(None)) == []


@pytest.mark.parametrize(
    "name", ["a.json", "dt=2026-01-01/hh=05/b.json", "with space & ünïcode 🎉 %41.json", "_x", ".y"]
)
def test_what_was_written_is_listed_and_read(storage, name_of, name):
    storage.write_new(name_of(name), b"[1]\x00\xff")
    (file,) = storage.list()
    assert file.uri == name_of(name)
    assert file.size == 5
    assert file.modified_at.utcoffset().total_seconds() == 0
    assert list(storage.list_recent(None)) == [file]
    looked_at = storage.stat(file.uri)
    assert (looked_at.uri, looked_at.size, looked_at.etag) == (file.uri, file.size, file.etag)
    assert abs(looked_at.modified_at - file.modified_at) < timedelta(seconds=1)  # S3's times are less precise
    assert storage.read(file.uri) == storage.read(file.uri, file.etag) == b"[1]\x00\xff"


def test_an_existing_file_is_never_replaced(storage, name_of):
    storage.write_new(name_of("a"), b"first")
    with pytest.raises(FileExistsError):
        storage.write_new(name_of("a"), b"second")
    assert storage.read(name_of("a")) == b"first"
    assert len(list(storage.list())) == 1  # no partial file remains next to it


def test_one_of_many_writers_wins(storage, name_of):
    def write(number: int) -> bool:
        try:
            storage.write_new(name_of("a"), b"%d" % number)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(16)))
    assert won.count(True) == 1
    assert storage.read(name_of("a")) == b"%d" % won.index(True)


def test_a_missing_file_is_absent_not_changed(storage, name_of):
    assert storage.stat(name_of("gone")) is None
    with pytest.raises(FileAbsentError, match=r"gone does not exist"):
        storage.read(name_of("gone"), "etag")


def test_another_etag_is_not_read(storage, name_of):
    storage.write_new(name_of("a"), b"1")
    with pytest.raises(FileChangedError, match=r"overwritten|written to"):
        storage.read(name_of("a"), "0123")


def test_siblings_of_the_root_are_not_listed(storage, root, name_of, request):
    s3 = request.getfixturevalue("s3_settings") if root.startswith("s3") else NO_S3
    open_storage(f"{root}-other", s3).write_new(f"{root}-other/x", b"1")
    storage.write_new(name_of("a"), b"1")
    assert [file.uri for file in storage.list()] == [name_of("a")]


def test_names_are_those_of_one_folder(storage, root, name_of):
    assert list(storage.names(f"{root}/plans")) == []
    for name in ("plans/2.json", "plans/1 %.json", "plans/inner/plans/3.json", "plans-other/4.json", "5.json"):
        storage.write_new(name_of(name), b"1")
    assert sorted(storage.names(f"{root}/plans")) == [name_of("1 %.json").rpartition("/")[2], "2.json"]
    assert list(storage.names(root)) == ["5.json"]


@pytest.mark.all
@pytest.mark.s3
def test_s3_lists_more_than_a_page_in_order_and_from_a_key(bucket, s3_settings):
    from lakeproof.storage.s3 import s3_client

    client, root = s3_client(s3_settings), f"s3://{bucket}/l"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: client.put_object(Bucket=bucket, Key=f"l/{i:04}", Body=b""), range(1005)))
    client.put_object(Bucket=bucket, Key="l/folder/", Body=b"")  # as consoles do
    storage = open_storage(root, s3_settings)
    assert [file.uri for file in storage.list()] == [f"{root}/{i:04}" for i in range(1005)]
    assert [file.uri for file in storage.list_recent(f"{root}/1002")] == [f"{root}/1003", f"{root}/1004"]


@pytest.mark.s3
@pytest.mark.parametrize(
    ("change", "bucket_name", "says"),
    [
        ({}, "no-such-bucket", "Create the bucket"),
        ({"access_key_id": "nobody"}, None, "AWS_ACCESS_KEY_ID"),
        ({"secret_access_key": "wrong"}, None, "AWS_SECRET_ACCESS_KEY"),
        ({}, "B", "AWS_ENDPOINT_URL"),
    ],
)
def test_a_bucket_that_refuses_is_one_line_and_a_hint(s3_settings, bucket, change, bucket_name, says):
    s3 = S3Settings(**(s3_settings.model_dump() | change))
    uri = f"s3://{bucket_name or bucket}/x"
    attempts = [
        lambda: check_bucket(uri, s3),
        lambda: list(open_storage(uri, s3).list()),
        lambda: open_storage(uri, s3).write_new(f"{uri}/a", b""),
        lambda: open_storage(uri, s3).read(f"{uri}/a"),
    ]
    for attempt in attempts:
        with pytest.raises(UnavailableError) as caught:
            attempt()
        assert "\n" not in caught.value.message
        assert says in caught.value.hint


def test_a_connection_that_breaks_is_one_line(monkeypatch):
    # botocore's own class for it, which has a `response` of None
    def broken(**_put):
        raise ConnectionClosedError(endpoint_url="http://127.0.0.1")

    settings = S3Settings(endpoint_url="http://127.0.0.1", access_key_id="a", secret_access_key="b")
    storage = S3Storage(client := s3_client(settings), "bucket", "")
    monkeypatch.setattr(client, "put_object", broken)
    with pytest.raises(UnavailableError, match=r"Cannot write .*: Connection was closed"):
        storage.write_new("s3://bucket/key", b"")


@pytest.mark.parametrize(
    ("code", "says"), [("ExpiredToken", "AWS_SESSION_TOKEN"), ("RequestTimeTooSkewed", "the clock of the machine")]
)
def test_keys_that_expired_and_a_wrong_clock_are_no_server_that_is_away(monkeypatch, code, says):
    def refused(**_put):
        raise ClientError({"Error": {"Code": code, "Message": ""}}, "PutObject")

    settings = S3Settings(endpoint_url="http://127.0.0.1", access_key_id="a", secret_access_key="b")
    storage = S3Storage(client := s3_client(settings), "bucket", "")
    monkeypatch.setattr(client, "put_object", refused)
    with pytest.raises(UnavailableError) as error:
        storage.write_new("s3://bucket/key", b"")
    assert says in error.value.hint


def test_a_header_that_is_refused_is_not_shown(monkeypatch):
    """On the machines of a cluster, the AWS tools find keys that no setting has checked."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "hush\n")
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # it keeps the keys that it finds
    with pytest.raises(UnavailableError, match="Invalid header value") as refused:
        open_storage("s3://lake", S3Settings(endpoint_url="http://127.0.0.1:9")).read("s3://lake/a")
    assert "hush" not in str(refused.value)


def test_an_endpoint_whose_host_botocore_refuses_is_a_usage_error():
    with pytest.raises(UsageError, match=r"http://mi_nio:9000(?s:.*)LAKE_SOURCE_ENDPOINT_URL"):
        check_bucket("s3://landing", S3Settings(endpoint_url="http://mi_nio:9000"))


def test_a_page_of_a_proxy_is_no_file():
    with answering(200, b"<html>Log in</html>") as uri:
        settings = S3Settings(endpoint_url=uri, access_key_id="a", secret_access_key="b")
        storage = open_storage("s3://bucket/folder", settings)
        for look in (storage.stat, lambda uri: storage.read(uri, "tag")):
            with pytest.raises(UnavailableError, match=r"s3://bucket/folder/key is not from S3(?s:.*)AWS_ENDPOINT_URL"):
                look("s3://bucket/folder/key")


def test_a_profile_that_is_missing_is_one_line_and_a_hint(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "missing")
    with pytest.raises(UnavailableError, match=r"Cannot use S3: .*\(missing\)(?s:.*)Check AWS_PROFILE"):
        open_storage("s3://bucket/folder", S3Settings(endpoint_url="http://127.0.0.1:2"))


def test_an_unknown_scheme_is_a_usage_error():
    with pytest.raises(UsageError, match="gs://bucket"):
        open_storage("gs://bucket", NO_S3)


def test_a_name_that_is_not_utf8_is_listed_and_read(tmp_path):
    (tmp_path / os.fsdecode(b"bad-\xff.json")).write_bytes(b"[]")
    storage = open_storage(tmp_path.as_uri(), NO_S3)
    (file,) = storage.list()
    assert file.uri.endswith("/bad-%FF.json")
    assert storage.read(file.uri) == b"[]"
    assert os.fsencode(local_path(file.uri)).endswith(b"bad-\xff.json")


def test_a_local_file_that_grew_has_another_etag(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"1")
    storage = open_storage(tmp_path.as_uri(), NO_S3)
    (before,) = storage.list()
    path.write_bytes(b"12")
    (after,) = storage.list()
    assert before.etag != after.etag


def test_links_that_lead_nowhere_or_in_circles_and_pipes_do_not_stop_a_listing(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "through").symlink_to("a/child")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "up").symlink_to(tmp_path)
    storage = open_storage(tmp_path.as_uri(), NO_S3)
    for listed in (storage.list(), storage.list_recent(None)):
        assert [file.uri for file in listed] == [(tmp_path / "a").as_uri()]


@pytest.mark.parametrize(("seconds", "year"), [(1.8e12, 9999), (-1e12, 2)])
def test_a_modification_time_outside_of_pythons_range_is_the_nearest_within(tmp_path, seconds, year):
    status = SimpleNamespace(st_size=1, st_mtime=seconds, st_mtime_ns=int(seconds) * 10**9)
    assert local._stored_file("file:///a", status).modified_at.year == year


def test_a_folder_in_the_way_cannot_be_written(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    storage = open_storage((tmp_path / "file").as_uri(), NO_S3)
    with pytest.raises(UnavailableError, match="Cannot write"):
        storage.write_new((Path(tmp_path) / "file" / "a").as_uri(), b"")


def test_a_file_is_replaced_whole_and_removed(storage, name_of):
    for content in (b"first", b"second"):
        storage.replace(name_of("a"), content)
        assert storage.read(name_of("a")) == content
    assert [file.uri for file in storage.list()] == [name_of("a")]
    storage.remove(name_of("a"))
    storage.remove(name_of("a"))
    assert list(storage.list()) == []


def test_the_mode_of_a_file_is_that_of_the_umask(tmp_path):
    storage = open_storage(tmp_path.as_uri(), NO_S3)
    before = os.umask(0o077)
    try:
        storage.write_new(f"{tmp_path.as_uri()}/in/new", b"")
        storage.replace(f"{tmp_path.as_uri()}/in/replaced", b"")
        os.umask(0o002)
        storage.replace(f"{tmp_path.as_uri()}/in/shared", b"")
    finally:
        os.umask(before)
    modes = [(tmp_path / "in" / name).stat().st_mode & 0o777 for name in ("new", "replaced", "shared")]
    assert modes == [0o600, 0o600, 0o664]


def test_folders_that_have_not_changed_for_days_are_looked_at_in_turn(tmp_path, monkeypatch):
    """Their number grows every hour; the root and changed folders are listed each time."""
    monkeypatch.setattr(local, "_OLDER_AT_ONCE", 2)
    long_ago = time.time() - 10 * 86_400

    def land(folder: str, name: str, at: float) -> None:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_bytes(b"[]")
        os.utime(tmp_path / folder, (at, at))

    for hour in range(5):
        land(f"hour-{hour}", "a.json", long_ago)
    storage = open_storage(tmp_path.as_uri(), NO_S3)

    def listed() -> set[str]:
        return {local_path(file.uri).relative_to(tmp_path).as_posix() for file in storage.list_recent(None)}

    assert listed() == {f"hour-{hour}/a.json" for hour in range(5)}
    for hour in range(5):
        land(f"hour-{hour}", "late.json", long_ago + 60)
    os.utime(tmp_path, (long_ago, long_ago))
    land("new", "b.json", time.time())
    first = listed()
    land("new", "c.json", time.time())
    second = listed()
    assert "new/b.json" in first
    assert "new/c.json" in second
    late = [{each for each in found if each.endswith("late.json")} for found in (first, second, listed())]
    assert max(map(len, late)) == 2
    assert set().union(*late) == {f"hour-{hour}/late.json" for hour in range(5)}


def test_a_known_folder_that_is_replaced_or_cannot_be_read(tmp_path, monkeypatch):
    folder = tmp_path / "day"
    folder.mkdir()
    (folder / "a.json").write_bytes(b"[]")
    storage = open_storage(tmp_path.as_uri(), NO_S3)
    assert len(list(storage.list_recent(None))) == 1
    look = Path.stat

    def refuse(path, **options):
        if path == folder:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return look(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", refuse)
        with pytest.raises(UnavailableError, match=f"Cannot list {folder}: Stale file handle"):
            list(storage.list_recent(None))
    shutil.rmtree(folder)
    folder.write_bytes(b"[]")
    assert [file.uri for file in storage.list_recent(None)] == [folder.as_uri()]


class RefusingClient:
    """A bucket of two objects, one of which cannot be removed: S3 says so in an answer with status 200."""

    def get_paginator(self, _operation):
        return self

    def paginate(self, **_):
        return [{"Contents": [{"Key": "old/a"}, {"Key": "old/b"}]}]

    def delete_objects(self, **_):
        return {"Errors": [{"Key": "old/b", "Code": "AccessDenied", "Message": "Access Denied"}]}


def test_an_object_that_cannot_be_removed_is_an_error(monkeypatch):
    monkeypatch.setattr(s3, "s3_client", lambda _: RefusingClient())
    with pytest.raises(UnavailableError, match="Cannot remove s3://bucket/old/b: Access Denied"):
        s3.remove_prefix("s3://bucket/old", NO_S3)
