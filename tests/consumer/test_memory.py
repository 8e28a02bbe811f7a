"""Memory stays within the limits, whatever a small file unpacks to, and whether or not it can be split."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import ROOT
from tests.selection import grid

MIB = 1 << 20
HEAD = b'{"user_id":"u","event_id":"e","event_timestamp":"2026-11-21T12:30:00Z","event_type":"page_view"'

CONSUMER = """
from lakeproof.judge.batch import Judge
from consumer.sources.files.read import envelopes
from lakeproof.contracts import load_contract
from lakeproof.state.landing_log import LandedFile

listed = [LandedFile(1, name, file.size, file.etag, file.modified_at) for name, file in zone.list()]
judge = Judge(load_contract(Path("contracts"), "events"), limits)
next(judge.judge(b"{}"))
peak = high()
for envelope in envelopes(listed, zone, limits):
    judged = judge.refuse(*envelope.failure, envelope.value) if envelope.failure else judge.judge(envelope.value)
    print(sum(map(len, judged)))
"""
READER = """
import pyarrow
from reader.verify.landed.files import recount

files = {name: file for name, file in zone.list() if file.size <= limits.unpacked_bytes}
list(recount(zone, {}, {}, set(), limits))
peak = high()
for counted in recount(zone, files, {name: {0} for name in files}, set(), limits):
    print(counted.units.count)
"""
SCRIPT = """
import sys
from pathlib import Path
from lakeproof.landing.zone import LandingZone
from lakeproof.settings import Limits, S3Settings

def high():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024

folder, unpacked = Path(sys.argv[1]), int(sys.argv[2])
limits = Limits(unpacked_bytes=unpacked, record_bytes=1 << 20)
s3 = S3Settings()
zone = LandingZone(folder.as_uri(), s3)
%s
print(high() - peak)
"""

LARGE = 128 * MIB
FAMILIES = {
    "zeros": (lambda: bytes(LARGE), 1),
    "spaces": (lambda: b" " * LARGE, 1),
    "digits": (lambda: b"1" * LARGE, 1),
    "a string": (lambda: b'"' + b"a" * (LARGE - 2) + b'"', 1),
    "a string of escapes": (lambda: b'"' + b"\\n" * (LARGE // 2 - 1) + b'"', 1),
    "an object": (lambda: HEAD + b',"product_id":"' + b"p" * (LARGE - len(HEAD) - 17) + b'"}', 1),
    "an array of it": (lambda: b"[" + HEAD + b',"product_id":"' + b"p" * (LARGE - len(HEAD) - 19) + b'"}]', 1),
    "an array that is cut short": (lambda: b'["' + b"a" * (LARGE - 2), 1),
    "a line between lines": (lambda: HEAD + b"}\n" + b"x" * (LARGE - 300) + b"\n" + HEAD + b"}", 3),
}


def grown(program: str, folder: Path, limit: int) -> tuple[int, int]:
    """Return the number of units, and the growth of a process's memory while it reads them."""
    command = [sys.executable, "-c", SCRIPT % program, str(folder), str(limit)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    units, growth = map(int, done.stdout.split())
    return units, growth


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the peak")
@grid(family=list(FAMILIES), program={"consumer": CONSUMER, "reader": READER})
def test_memory_follows_the_limit(tmp_path, program, family):
    make, units = FAMILIES[family]
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(make(), 1))
    found, growth = grown(program, tmp_path, LARGE)
    assert found == units
    assert growth < 2.5 * LARGE
    if family == "zeros":  # the limit counts, not the unpacked size
        found, growth = grown(program, tmp_path, 8 * MIB)
        assert found == 1
        assert growth < 64 * MIB


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the peak")
def test_a_plain_file_over_the_limit_is_not_read(tmp_path):
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(20 << 30)  # takes no room on the disk
    found, growth = grown(CONSUMER, tmp_path, 8 * MIB)
    assert found == 1
    assert growth < 64 * MIB
