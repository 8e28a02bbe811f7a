"""Offsets given up, by stream and partition."""

from pathlib import Path

from lakeproof.state.given_up import forget_given_up, give_up_before, given_up_before


def test_the_newest_counts(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'state.db'}"
    assert given_up_before(database, "events", 0) == 0
    give_up_before(database, "events", 0, 4)
    give_up_before(database, "events", 0, 7)
    give_up_before(database, "sensors", 0, 9)
    assert [given_up_before(database, "events", partition) for partition in (0, 1)] == [7, 0]
    forget_given_up(database, "events")
    assert [given_up_before(database, stream, 0) for stream in ("events", "sensors")] == [0, 9]
