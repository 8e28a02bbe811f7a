"""The retention of a contract: valid options, and positions of errors."""

from datetime import timedelta

import pytest

from lakeproof.contracts import Contract, parse_contract
from lakeproof.contracts.diff import Compatibility, changes, compatibility
from lakeproof.contracts.model import Removable, Retention
from lakeproof.errors import UsageError

CONTRACT = """\
apiVersion: v3.2.0
kind: DataContract
version: 1.0.0
customProperties:
  - {{property: eventTime, value: at}}
{retention}schema:
  - name: things
    properties:
      - {{name: at, logicalType: timestamp}}
"""


def parse(retention: str = "") -> Contract:
    line = f"  - {{property: retention, value: {retention}}}\n" if retention else ""
    return parse_contract(CONTRACT.format(retention=line).encode(), "things.yaml")


def test_what_a_retention_says() -> None:
    assert parse().retention is None
    assert parse("{landed: 30 days}").retention == Retention(timedelta(days=30))
    archived = Retention(timedelta(hours=12), "s3://bucket/old")
    assert parse("{landed: 12 hours, archive: 's3://bucket/old'}").retention == archived
    rows = parse("{dead_letters: 90 days, late: 1 day}").retention
    assert rows == Retention(dead_letters=timedelta(days=90), late=timedelta(days=1))
    assert [rows.age_of(each) for each in Removable] == [None, timedelta(days=90), None, timedelta(days=1)]


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("30 days", "retention: expected some of landed, dead_letters, conflicts, late, archive, got '30 days'."),
        ("{archive: /old, late: 1 day}", "retention: expected the key landed beside archive"),
        ("{}", "retention: expected some of landed, dead_letters, conflicts, late, got {}."),
        ("{late: soon}", "retention: expected a duration like 7 days, 12 hours or 90 minutes, got 'soon'."),
        ("{landed: 30}", "retention: expected a duration like 7 days, 12 hours or 90 minutes, got 30."),
        ("{landed: 30 days, archve: /old}", "retention: unknown key 'archve'."),
        ("{landed: 30 days, archive: 3}", "retention: expected a folder or an address, got 3."),
    ],
)
def test_what_it_cannot_say(written: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(written)
    assert "things.yaml:6:" in str(refused.value.message)
    assert says in str(refused.value.message)


def test_a_change_of_it_changes_no_record() -> None:
    found = tuple(changes(parse(), parse("{landed: 30 days, archive: /old}")))
    assert [change.what for change in found] == [
        "retention unbounded → of landed files 30 days, archived in /old: same records"
    ]
    found = tuple(changes(parse("{late: 1 day}"), parse("{dead_letters: 2 days, conflicts: 1 day}")))
    assert [change.what for change in found] == [
        "retention of late rows 1 day → of closed dead letters 2 days, of conflicts 1 day: same records"
    ]
    assert compatibility(found) is Compatibility.FULL
