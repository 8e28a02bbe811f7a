"""The report of a synthetic pipeline has its costs, and predicts held-out samples."""

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.harness import Options
from benchmarks.model import costs_of, held_out, laws_of, memory_of, model_of, report_of
from benchmarks.report import page, write_report

from benchmarks import model

CORES, DELAYS = (1, 2, 4), (0.0, 0.05, 0.25, 1.0, 5.0)
SIZES = [(100, 5_000), (200, 10_000), (400, 20_000), (50, 50_000), (100, 100_000), (200, 200_000), (400, 400_000)]
CONTENTION, COHERENCE = 0.05, 0.01


def layers() -> list[dict[str, Any]]:
    samples = []
    for cores in CORES:
        inflation = 1 + CONTENTION * (cores - 1) + COHERENCE * cores * (cores - 1)
        remembered = 10_000
        for files, rows in [*SIZES, (600, 600_000)]:
            shape = {"files": files, "rows": rows, "bytes": rows * 280, "remembered": remembered, "cores": cores}
            shape |= {"held_out": files == 600, "arrow_peak": (rows + remembered) * 110, "commit": 0.1, "wall": 1.0}
            took = {
                "bronze": (0.1 + 1e-4 * files, 0.2 + 1e-4 * files, 0.1 + 1e-3 * files + 1.5e-5 * rows),
                "silver": (0.1 + 2e-6 * rows + 1e-7 * remembered, 0.2, 0.2 + 7e-6 * rows),
                "gold": (0.1, 0.2, 0.1 + 1e-6 * rows),
            }
            for layer, (driver, jvm, workers) in took.items():
                samples.append(shape | {"layer": layer, "driver": driver, "jvm": jvm, "workers": workers * inflation})
            remembered += rows
            samples.append({"layer": "look up", "remembered": remembered, "seconds": 1e-6 * remembered, "cores": cores})
    return samples


def phases() -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = []
    for files in (400, 800, 1_600, 3_200, 6_400):
        costs = {"list": 1e-4, "list again": 5e-5, "list recent": 1e-5, "plan": 2e-5, "ledger": 3e-5}
        samples += [{"phase": name, "files": files, "seconds": 0.01 + each * files} for name, each in costs.items()]
        samples[-5]["state_bytes"] = files * 250
        memory = {"memory of list": 1_000, "memory of plan and ledger": 2_000}
        samples += [{"phase": name, "files": files, "bytes": 50_000 + each * files} for name, each in memory.items()]
    for files, rows in SIZES:
        for tasks in (1, 4):
            shape = {"files": files, "rows": rows, "tasks": tasks}
            samples += [
                {"phase": "read", **shape, "seconds": 1e-4 * files + 1e-7 * rows},
                {"phase": "judge", **shape, "seconds": 1e-4 * files + 1e-6 * rows},
                {"phase": "write", **shape, "seconds": 0.01 * tasks + 5e-6 * rows},
            ]
    return samples


def measured() -> dict[str, list[dict[str, Any]]]:
    commits: list[dict[str, Any]] = [
        {
            "phase": "commit",
            "snapshots": snapshots,
            "data_files": files,
            "seconds": 0.05 + 2e-5 * snapshots + 1e-3 * files,
        }
        for snapshots, files in ((20, 8), (23, 32), (26, 96), (100, 1), (400, 1), (800, 1), (1_600, 1))
    ]
    commits += [{"phase": "commit", "snapshots": 3_200, "data_files": 1, "seconds": 0.115, "held_out": True}]
    commits = [each | {"metadata_bytes": 2_000 + 1_190 * each["snapshots"]} for each in commits]
    commits += [{"phase": "maintain", "snapshots": 3_200, "wall": 20.0}]
    commits += [{"phase": "commit, maintained", "snapshots": 1, "data_files": 1, "seconds": 0.05}]
    triggers: list[dict[str, Any]] = [
        {"layer": "trigger", "files": files, "wall": 0.3 + 1e-4 * files} for files in (100, 200, 400, 800)
    ]
    triggers += [
        {
            "layer": "schedule",
            "tasks": tasks,
            "driver": 1e-4 * tasks,
            "jvm": 0.01 + 2e-3 * tasks,
            "executor": 1e-3 * tasks,
        }
        for tasks in (4, 16, 64, 256)
    ]
    latency: list[dict[str, Any]] = [
        {"phase": "list in a bucket", "files": files, "seconds": 0.01 + 2e-4 * files} for files in (400, 800, 1_600)
    ]
    for files, delay in [(8, 0.0), (16, 0.0), (32, 0.0), (64, 0.0), *((8, delay) for delay in DELAYS[1:])]:
        for layer, requests in {"bronze": 12, "silver": 16, "gold": 5}.items():
            shape = {
                "layer": layer,
                "files": files,
                "delay": delay,
                "held_out": delay == 5.0,
                "wall": 1 + requests * delay,
            }
            latency.append(shape | {"catalog": {"GET": requests - 3, "POST": 3}, "s3": {"GET": files, "PUT": 10}})
    return {"phases": phases(), "layers": layers(), "commits": commits, "triggers": triggers, "latency": latency}


@pytest.fixture(scope="module")
def samples() -> dict[str, list[dict[str, Any]]]:
    return measured()


def test_what_is_known_of_a_pipeline_is_found(samples: dict[str, list[dict[str, Any]]]) -> None:
    costs = costs_of(samples)
    assert costs["judge"].cost.each == pytest.approx({"files": 1e-4, "rows": 1e-6}, rel=1e-3)
    assert costs["write"].cost.each == pytest.approx({"tasks": 0.01, "rows": 5e-6}, rel=1e-3)
    assert costs["silver, driver"].cost.each == pytest.approx({"rows": 2e-6, "remembered": 1e-7}, rel=1e-2)
    for law in laws_of(samples).values():
        assert (law.contention, law.coherence) == pytest.approx((CONTENTION, COHERENCE), rel=1e-3)
    found = model_of(samples, costs, laws_of(samples))
    assert found.layers["bronze"].catalog_requests == 12
    assert found.commit.each == pytest.approx({"data_files": 1e-3, "snapshots": 2e-5}, rel=1e-2)
    assert memory_of(samples)["file"] == pytest.approx(2_000)


def test_what_was_held_out_is_predicted_and_not_fitted(samples: dict[str, list[dict[str, Any]]]) -> None:
    checks = held_out(samples, costs_of(samples), laws_of(samples))
    assert {check.what for check in checks} >= {"commit, 3,200 snapshots", "list, 6,400 files"}
    assert any(check.what == "bronze, 600,000 rows, local[4]" for check in checks)
    assert max(check.error for check in checks) < 0.01
    wrong = {
        **samples,
        "commits": [each | {"seconds": 1.0} if each.get("held_out") else each for each in samples["commits"]],
    }
    (off,) = [check for check in held_out(wrong, costs_of(wrong), laws_of(wrong)) if check.what.startswith("commit")]
    assert off.error > 0.8


def test_the_page_says_what_breaks_first_and_is_made_again_from_the_file(
    samples: dict[str, list[dict[str, Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = report_of(samples, {"cores": "2"}, {"files": 400})
    titles = [table.title for table in report.tables]
    assert [title for title in titles if "10,000 files a minute" in title]
    for table in report.tables:
        assert all(len(row) == len(table.columns) for row in table.rows), table.title
    write_report(report, tmp_path)
    text = (tmp_path / "model.md").read_text()
    assert text == page(report)
    assert "breaks first" in text
    assert "A landing zone of 10,000,000 files" in text
    monkeypatch.setattr(model, "DOCS", tmp_path)
    again = model.run(Options(predict=True))
    assert json.loads(json.dumps(again.raw)) == samples
    assert again.tables == report.tables
