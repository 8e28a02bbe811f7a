"""Reading landed files: content that is too large stays in its file."""

import gzip
from hashlib import blake2b

import pytest

from consumer.sources.files import read
from consumer.sources.files.read import envelopes
from lakeproof.landing.zone import LandingZone
from lakeproof.settings import Limits, S3Settings, settings_of
from lakeproof.state.landing_log import LandedFile

S3 = S3Settings()
LIMITS = Limits(unpacked_bytes=100, record_bytes=50)


def listed(zone: LandingZone) -> list[LandedFile]:
    files = sorted(zone.list(), key=lambda each: each[0])
    return [LandedFile(seq, name, file.size, file.etag, file.modified_at) for seq, (name, file) in enumerate(files, 1)]


def packed(content: bytes) -> bytes:
    """Compress to the same bytes each time, since test names contain them."""
    return gzip.compress(content, mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "reason", "value"),
    [
        ("a.json", b"[]" + bytes(98), None, b"[]" + bytes(98)),
        ("a.json.gz", packed(bytes(100)), None, bytes(100)),
        ("a.json.gz", packed(bytes(60)) + packed(bytes(40)) + bytes(9), None, bytes(100)),
        ("a.json", bytes(101), ("batch_too_large", "has 101 bytes, but LAKE_MAX_UNPACKED_BYTES is 100"), None),
        ("a.json.gz", bytes(101), ("batch_too_large", "has 101 bytes, but LAKE_MAX_UNPACKED_BYTES is 100"), None),
        ("a.json.gz", packed(bytes(101)), ("batch_too_large", "unpacks to more than 100 bytes"), None),
        ("a.json.gz", packed(bytes(70)) * 2, ("batch_too_large", "LAKE_MAX_UNPACKED_BYTES is 100"), None),
        ("a.json.gz", b"[1]", ("undecodable", "incorrect header check"), b"[1]"),
        ("a.json.gz", packed(b"[1]")[:-1], ("undecodable", "file ends at byte 22"), packed(b"[1]")[:-1]),
    ],
)
def test_what_is_read_of_a_file(tmp_path, monkeypatch, name, content, reason, value):
    (tmp_path / name).write_bytes(content)
    (tmp_path / "b.json").write_bytes(b"[2]")
    zone = LandingZone(tmp_path.as_uri(), S3)
    read_file, read_uris = zone.storage.read, []
    monkeypatch.setattr(zone.storage, "read", lambda uri, etag: (read_uris.append(uri), read_file(uri, etag))[1])
    found, next_one = envelopes(listed(zone), zone, LIMITS)
    assert found.value == value
    assert (next_one.value, next_one.failure) == (b"[2]", None)
    if reason is None:
        assert found.failure is None
    else:
        code, part = reason
        assert found.failure is not None
        assert found.failure[0] == code
        assert part in found.failure[1]
        if code == "batch_too_large":
            assert found.source in found.failure[1]
    is_read = len(content) <= LIMITS.unpacked_bytes
    assert (zone.uri_of(found.source) in read_uris) is is_read  # a large file is not even read


@pytest.mark.parametrize("hashed_bytes", [1, 150, 1 << 20])
def test_files_that_are_hashed_together_have_their_own_hashes_and_order(tmp_path, monkeypatch, hashed_bytes):
    monkeypatch.setattr(read, "_HASHED_BYTES", hashed_bytes)
    contents = {"a.json": b"", "b.json.gz": packed(b"[1]"), "c.json": bytes(99), "d.json.gz": b"[2]", "e.json": b"[3]"}
    contents["f.json"] = bytes(101)  # not read, so it has no hash
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    zone = LandingZone(tmp_path.as_uri(), S3)
    found = list(envelopes(listed(zone), zone, LIMITS))
    assert [each.source for each in found] == list(contents)
    hashes = {name: blake2b(content, digest_size=16).hexdigest() for name, content in contents.items()}
    assert {each.source: each.content_hash for each in found} == hashes | {"f.json": None}


def test_limits_without_settings_are_the_settings_defaults():
    assert settings_of({}).limits == Limits()
    limits = settings_of({"LAKE_MAX_UNPACKED_BYTES": 7, "LAKE_MAX_RECORD_BYTES": 5}).limits
    assert limits == Limits(unpacked_bytes=7, record_bytes=5)
