from datetime import UTC, datetime

import pytest

from consumer.removal.condition import Condition
from consumer.removal.file_search import FileSearch
from lakeproof.storage import StoredFile
from lakeproof.storage.errors import FileAbsentError

NOW = datetime.now(UTC)


def stored(name: str, tag: str = "1") -> StoredFile:
    return StoredFile(f"file:///{name}", 1, tag, NOW)


@pytest.fixture
def search() -> FileSearch:
    return FileSearch(Condition(({"user_id": "u-123456"},)))


def test_files_that_match_are_named_in_their_order(search: FileSearch) -> None:
    content = {"file:///a": b'{"user_id": "u-123456"}', "file:///b": b"{}", "file:///c": b'{"user_id": "u-123456"}'}
    found = search.matches(content.__getitem__, map(stored, "abc"))
    assert found == ["file:///a", "file:///c"]


def test_a_clean_version_is_read_once_and_a_match_again(search: FileSearch) -> None:
    read: list[str] = []

    def content(uri: str) -> bytes:
        read.append(uri)
        return b'{"user_id": "u-123456"}' if uri.endswith("bad") else b"{}"

    for tag in ("1", "1", "2"):
        assert search.matches(content, [stored("clean", tag), stored("bad")]) == ["file:///bad"]
    assert sorted(read) == ["file:///bad"] * 3 + ["file:///clean"] * 2


def test_a_file_that_is_gone_is_no_match_and_not_clean(search: FileSearch) -> None:
    def gone(uri: str) -> bytes:
        raise FileAbsentError(uri)

    assert search.matches(gone, [stored("a")]) == []
    assert search.matches(lambda _: b'{"user_id": "u-123456"}', [stored("a")]) == ["file:///a"]
