"""The measurements of the capacity model, at the smallest sizes, have the fields that the model is fitted to."""

from pathlib import Path
from typing import Any

import pytest
from benchmarks.harness import Options
from benchmarks.model import report_of

from benchmarks import model_measure

pytestmark = [pytest.mark.long, pytest.mark.spark]


@pytest.fixture(autouse=True)
def _own_work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("harness", "inputs", "minio", "model_measure"):
        monkeypatch.setattr(f"benchmarks.{name}.WORK", tmp_path)
    monkeypatch.setattr(model_measure, "DELAYS", (0.01, 0.02, 0.05, 0.1))


def test_what_is_measured_makes_a_report() -> None:
    samples: dict[str, Any] = model_measure.measure(Options(files=40, repeat=1))
    report = report_of(samples, {}, {})
    assert {each["cores"] for each in samples["layers"]} == {1, 2, 4}
    assert {"commit", "maintain", "commit, maintained"} == {each["phase"] for each in samples["commits"]}
    # Predicted from the counted requests, and measured with the slow catalog.
    slow = [each for each in samples["latency"] if each.get("delay") == 0.1]
    assert all(each["wall"] >= 0.1 * sum(each["catalog"].values()) for each in slow)
    assert len(report.goals) >= 9
