"""Selection of files in a landing zone: by name, by time, and by the patterns that a contract includes and excludes."""

from datetime import UTC, datetime, timedelta

import pytest

from lakeproof.landing.selection import EVERYTHING, Ignored, Selection
from lakeproof.storage import StoredFile

NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)


def file(at: datetime = NOON) -> StoredFile:
    return StoredFile("s3://bucket/any", 2, "tag", at)


@pytest.mark.parametrize(
    ("glob", "matching", "others"),
    [
        ("*.json", ["a.json", "x/y/a.json", "/linked/a.json"], ["a.json.gz", "a.JSON", "json"]),
        ("2026/*/*.json", ["2026/11/a.json"], ["2026/a.json", "2026/11/25/a.json", "x/2026/11/a.json"]),
        ("**/*.json.gz", ["a.json.gz", "x/y/a.json.gz"], ["a.json", "a.json.gz/b"]),
        ("tmp/**", ["tmp/a", "tmp/x/y/a"], ["tmp.json", "x/tmp/a"]),
        ("**/tmp/**/a", ["tmp/a", "x/tmp/a", "x/y/tmp/z/a"], ["tmp/b", "a"]),
        ("part-?[0-9].json", ["part-a7.json", "x/part-17.json"], ["part-7.json", "part-aa.json"]),
        ("dt=2026-11-*/**", ["dt=2026-11-25/h=1/a b+c.json"], ["dt=2026-12-01/a"]),
        # A glob is matched against the key, not against the encoded name.
        ("100%/ü *.json", ["100%25/ü 1.json"], ["100%/ü1.json"]),
    ],
)
def test_globs(glob: str, matching: list[str], others: list[str]) -> None:
    included, excluded = Selection(include=(glob,)), Selection(exclude=(glob,))
    for name in matching:
        assert included.ignores(name, file()) is None, name
        assert excluded.ignores(name, file()) is Ignored.EXCLUDED, name
    for name in others:
        assert included.ignores(name, file()) is Ignored.EXCLUDED, name
        assert excluded.ignores(name, file()) is None, name


def test_what_is_excluded_wins_and_hidden_files_stay_hidden() -> None:
    selection = Selection(include=("**",), exclude=("old/**", "*.bak"))
    found = [selection.ignores(name, file()) for name in ("a.json", "old/a.json", "x/a.bak", "_SUCCESS")]
    assert found == [None, Ignored.EXCLUDED, Ignored.EXCLUDED, Ignored.HIDDEN]


def test_files_of_others_that_are_no_json_by_their_names_are_left_out_unless_included() -> None:
    others = Selection(of_others=True)
    names = ["a.json", "a.ndjson.gz", "no-suffix", "a.json.zst", "T.PARQUET", "a.csv", "a.tar.gz"]
    assert [others.ignores(name, file()) for name in names] == [None] * 3 + [Ignored.FORMAT] * 4
    assert Selection(("*.csv",), of_others=True).ignores("a.csv", file()) is None
    assert EVERYTHING.ignores("a.csv", file()) is None


def test_a_time_counts_in_whole_seconds_since_a_listing_and_a_look_at_one_key_differ() -> None:
    selection = Selection(start=NOON)
    assert selection.ignores("a", file(NOON)) is None
    assert selection.ignores("a", file(NOON + timedelta(seconds=0.9))) is None
    assert selection.ignores("a", file(NOON - timedelta(seconds=0.1))) is Ignored.EARLIER
