"""The report of verify for people."""

import io
from datetime import UTC, datetime

import pytest

from lakeproof.landing.selection import Ignored
from lakeproof.state.proofs import Proof, ProofKind, ProofOutcome
from reader.verify.check import Result, Verification
from reader.verify.checks.proof import SECTION as PROOF
from reader.verify.checks.sources import SECTION, result_of
from reader.verify.findings import Finding, Status
from reader.verify.report import ReportFormat, write_report


def printed(capsys: pytest.CaptureFixture[str], *findings: Finding, resent: tuple[tuple[str, ...], ...] = ()) -> str:
    found = Verification("events", {SECTION: (result_of(findings, ignored={Ignored.HIDDEN: 1}, resent=resent),)})
    write_report([found], ReportFormat.TABLE, io.StringIO())
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("files", "offsets", "said"),
    [
        (1, [], "1 file is not consumed yet."),
        (6, [], "6 files are not consumed yet."),
        (0, [1], "1 offset of 1 partition is not consumed yet."),
        (0, [3, 1_000], "1,003 offsets of 2 partitions are not consumed yet."),
        (2, [3], "2 files are not consumed yet. 3 offsets of 1 partition are not consumed yet."),
    ],
)
def test_what_is_not_consumed_yet_has_the_noun_of_its_source(
    files: int, offsets: list[int], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [Finding(f"{number}.json", Status.PENDING) for number in range(files)]
    found += [Finding(f"shop/{number}", Status.PENDING, waiting) for number, waiting in enumerate(offsets)]
    assert printed(capsys, *found).endswith(f"Nothing is lost or doubled so far. {said}\n")


def test_what_a_terminal_would_obey_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    name = "[red]\u202efdp.json"
    out = printed(capsys, Finding(name, Status.LOST, details=("at \x1b[2J",)), resent=((name, "b.json"),))
    assert out.count(r"[red]\u202efdp.json") == 2
    assert r"at \x1b[2J" in out
    assert "1 file is a copy of another file" in out
    assert "ignored 1 file with" in out


@pytest.mark.parametrize("kind", ProofKind)
@pytest.mark.parametrize(("number", "is_said"), [(0, True), (7, False)])
def test_a_proof_that_is_not_in_the_book_is_said(
    kind: ProofKind, number: int, is_said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    now = datetime.now(UTC)
    proof = Proof("events", kind, now, now, "me@here", ProofOutcome.CLEAN, 0, number=number)
    facts = {"kind": kind, "since": None, "why_all": None, "tables": []}
    found = Verification("events", {SECTION: (result_of(()),), PROOF: (Result(facts),)}, proof)
    write_report([found], ReportFormat.TABLE, io.StringIO())
    assert ("the proof is not in the book" in " ".join(capsys.readouterr().out.split())) is is_said
