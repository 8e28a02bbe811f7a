"""The two ways to read timestamps agree; test_json_types.py has the values that fit each type."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.selection import examples

from lakeproof.judge import scalars
from lakeproof.judge.scalars import UnfitError, to_timestamp


def outcome(value: str) -> int | str:
    try:
        return to_timestamp(value)
    except UnfitError as error:
        return f"{error.code}: {error.detail}"


FORMS = st.from_regex(
    r"\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-6]\d:[0-6]\d(\.\d{1,10})?(Z|[+-][0-2]\d:?([0-6]\d)?)", fullmatch=True
) | st.datetimes(timezones=st.timezones()).map(lambda moment: moment.isoformat())


@pytest.mark.all
@settings(max_examples=examples(1_000), deadline=None)
@given(FORMS)
@example("0000-01-01T00:00:00Z")
@example("0001-01-01T00:00:00+00:01")
@example("0001-01-01T00:00:00-00:01")
@example("9999-12-31T23:59:59.999999Z")
@example("9999-12-31T23:59:59.999999-00:01")
@example("2023-02-29T00:00:00Z")
@example("2024-02-29T24:00:00Z")
@example("2024-02-29T23:59:60Z")
@example("2024-02-29T00:00:00.1Z")
@example("2024-02-29T00:00:00.0000001Z")
@example("2024-02-29T00:00:00-00:00")
@example("२०२४-02-29T00:00:00Z")
def test_the_usual_form_is_read_as_any_other(value: str) -> None:
    quick = outcome(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scalars, "_USUAL_TIMESTAMP", scalars.re.compile("never"))
        assert outcome(value) == quick


def test_usual_timestamps_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalars, "_to_unusual_timestamp", pytest.fail)
    assert to_timestamp("1970-01-02T01:00:00.5+01:00") == 86_400_500_000
    assert to_timestamp("1969-12-31T23:59:59Z") == -1_000_000
