"""Input of benchmarks has days in many months, and numbers in every form."""

import json
import re
import subprocess
import sys

from benchmarks.inputs import vary_days
from tests.conftest import ROOT


def test_days_and_numbers_vary(tmp_path):
    options = (
        "--batches",
        20,
        "--batch-size",
        300,
        "--seed",
        1,
        "--start",
        "2026-11-21T08:00:00Z",
        "--target",
        tmp_path,
    )
    command = [sys.executable, "-m", "producer", "events", *map(str, options)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    files = sorted(tmp_path.rglob("*.json"))
    before = [path.read_bytes() for path in files]
    vary_days(tmp_path)
    after = [path.read_bytes() for path in files]
    assert [len(content) for content in after] == [len(content) for content in before]
    events = [event for content in after for event in json.loads(content)]
    assert len(events) == 20 * 300
    days = {event["event_timestamp"][:10] for event in events}
    assert len(days) == 8
    assert {day[5:7] for day in days} > {"03", "11", "12"}
    assert any(day.startswith("2026-03-0") for day in days)
    amounts = set(re.findall(rb'"amount":([^,}]+)', b"".join(after)))
    assert {b"0", b"0.00", b"-0.0", b"-0"} < amounts
    assert any(re.fullmatch(rb"[1-9]\d*", amount) for amount in amounts)
    assert sum(re.fullmatch(rb"\d+\.\d\d", amount) is not None for amount in amounts) > 200
