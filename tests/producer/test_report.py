"""The report is correct: a recount of the landed bytes by independent code gives the same numbers."""

import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.selection import only_with_all

ALL_FAULTS = [
    argument
    for fault in ("corruption", "invalid-schema", "extra-field", "duplicate")
    for argument in (f"--{fault}-chance", "0.1")
]


@pytest.mark.parametrize(
    "seed", [1, only_with_all(2), *(pytest.param(seed, marks=pytest.mark.long) for seed in (3, 4, 5))]
)
@pytest.mark.parametrize("style", ["compact", "spaced", "ndjson"])
def test_the_report_equals_a_recount(produce: Any, recount: Any, tmp_path: Path, seed: int, style: str) -> None:
    arguments = ["--batches", 50, "--batch-size", 40, "--seed", seed, "--json-style", style, *ALL_FAULTS]
    result = produce(*arguments, "--target", tmp_path / "landing", "--report", tmp_path / "report.json")
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "report.json").read_bytes())
    landed = [path.read_bytes() for path in sorted((tmp_path / "landing").rglob("*.json"))]

    assert report["expected"] == recount(landed)
    assert report["batches"] == len(landed) == 50
    assert report["bytes"] == sum(map(len, landed))
    assert report["events"] == sum(report["combinations"].values()) == 2000
    assert report["corrupt_batches"] == report["expected"]["dead_letters"]["corrupt_batch"]
    for fault, total in (("invalid", "invalid"), ("extra", "extra"), ("duplicate", "duplicates")):
        assert report[total] == sum(count for name, count in report["combinations"].items() if fault in name.split("+"))


def test_combinations_equal_a_recount(produce: Any, reasons: Any, tmp_path: Path) -> None:
    arguments = ["--batches", 20, "--seed", 3, *ALL_FAULTS[2:], "--report", tmp_path / "report.json"]
    assert produce(*arguments, "--target", tmp_path / "landing").exit_code == 0
    seen: set[str] = set()
    counted: Counter[str] = Counter()
    for path in sorted((tmp_path / "landing").rglob("*.json")):
        for record in json.loads(path.read_bytes()):
            text, found = json.dumps(record), reasons(record)
            faults = [
                *(["invalid"] if set(found) - {"unknown_field"} else []),
                *(["extra"] if "unknown_field" in found else []),
                *(["duplicate"] if text in seen else []),
            ]
            counted["+".join(faults) or "sound"] += 1
            seen.add(text)
    report = json.loads((tmp_path / "report.json").read_bytes())
    assert report["combinations"] == counted
    assert len(counted) == 8  # each of the three faults, with and without the others


def test_without_faults_all_is_expected_in_bronze(produce: Any, tmp_path: Path) -> None:
    produce(
        "--batches", 3, "--batch-size", 5, "--target", tmp_path / "landing", "--report", tmp_path / "new" / "r.json"
    )
    report = json.loads((tmp_path / "new" / "r.json").read_bytes())
    assert report["expected"] == {"bronze": 15, "dead_letters": {}}
    assert report["combinations"] == {"sound": 15}


def test_a_report_that_cannot_be_written_is_refused_before_anything_lands(produce: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = produce("--batches", 1, "--target", tmp_path / "landing", "--report", tmp_path / "file" / "report.json")
    assert result.exit_code != 0
    assert "Cannot write the report to" in str(result.exception)
    assert not (tmp_path / "landing").exists()


def test_a_report_to_a_pipe_or_a_link_replaces_neither(produce: Any, tmp_path: Path) -> None:
    """Root's report to /dev/null once replaced the device for every program on the machine."""
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "report.json"
    os.mkfifo(pipe)
    link.symlink_to(file)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_bytes)
        assert produce("--batches", 1, "--target", tmp_path / "a", "--report", pipe).exit_code == 0
        assert json.loads(read.result(timeout=60))["batches"] == 1
    assert pipe.is_fifo()
    assert produce("--batches", 1, "--target", tmp_path / "b", "--report", link).exit_code == 0
    assert link.is_symlink()
    assert json.loads(file.read_bytes())["batches"] == 1
