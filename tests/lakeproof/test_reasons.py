"""Codes of reasons, and the text of sets of codes."""

import pyarrow as pa
import pytest

from lakeproof.judge.judged import Fault, reasons_column
from lakeproof.reasons import Reason, reason_sets


def reasons(*units: list[Reason]) -> pa.Array:
    return reasons_column([[Fault(code, "$", "detail") for code in codes] for codes in units])


def test_sets_are_sorted_and_have_each_code_once() -> None:
    several = [Reason.WRONG_TYPE, Reason.MISSING_FIELD, Reason.WRONG_TYPE]
    assert reason_sets(reasons([Reason.NULL_FIELD], several)) == ["null_field", "missing_field+wrong_type"]
    assert reason_sets(reasons([Reason.NULL_FIELD], [Reason.TOO_DEEP])) == ["null_field", "too_deep"]
    assert reason_sets(reasons()) == []


@pytest.mark.parametrize("nothing", [None, []])
def test_a_unit_without_reasons_has_an_empty_set(nothing: list[object] | None) -> None:
    kind = reasons([Reason.NULL_FIELD]).type
    one = [{"code": "null_field", "path": "$", "detail": ""}]
    assert reason_sets(pa.array([one, nothing, one], kind)) == ["null_field", "", "null_field"]


def test_part_of_an_array_has_its_own_sets() -> None:
    assert reason_sets(reasons([Reason.NULL_FIELD], [Reason.TOO_DEEP]).slice(1)) == ["too_deep"]
