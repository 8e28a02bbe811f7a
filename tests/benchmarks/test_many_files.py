"""The figures of micro-batches of many files."""

from typing import Any

import pytest
from benchmarks.harness import PeakMemory, Sample, SideFailedError
from benchmarks.sides.many_files import RECORDS

from benchmarks import many_files


@pytest.mark.parametrize(("in_ledger", "is_right"), [(20, True), (19, False)])
def test_a_side_that_lost_a_file_has_no_figures(
    in_ledger: int, is_right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: dict[str, Any] = {"seconds": 1.0, "bronze": 20 * RECORDS, "ledger": in_ledger, "landed": 20}
    monkeypatch.setattr(many_files, "run_side", lambda _: Sample("side", 1.0, 1.0, PeakMemory(), figures))
    if is_right:
        assert many_files._figures(10, 2) == figures
    else:
        with pytest.raises(SideFailedError, match="Of 20 files, 19 are in the ledger"):
            many_files._figures(10, 2)
