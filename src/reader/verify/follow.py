"""``reader verify --follow``: repeatedly prove new data while the streams run."""

import json
import sys
from threading import Event
from time import monotonic
from types import FrameType

from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings
from lakeproof.signals import ending_signals
from lakeproof.standard_streams import printable
from lakeproof.state.proofs import ProofKind
from lakeproof.wording import count_of
from reader.verify.check import Verification, exit_code
from reader.verify.driver import verify
from reader.verify.report import ReportFormat


class _EndedError(BaseException):
    """A signal arrived during a proof; nothing of the proof is recorded in the book."""


def follow(
    settings: Settings,
    stream: str | None,
    every: float,
    report_format: ReportFormat,
    values: bool = False,
    sample: int | None = None,
) -> int:
    """Verify every `every` seconds until a signal; return the exit code of the last proof.

    An error, such as an unreachable catalog, ends the proof but not the program, unless no proof has succeeded yet and
    the error is not retryable. An error of one stream ends neither.
    """
    ended, code, is_proving, has_proven = Event(), 0, False, False

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()
        if is_proving:
            raise _EndedError

    with ending_signals(end):
        while not ended.is_set():
            began = monotonic()
            try:
                is_proving = True
                found = verify(settings, stream, values, kind=ProofKind.NEW, sample=sample)
                is_proving = False
                errors = [each.error for each in found if each.error]
                if ended.is_set() and errors:
                    break
                has_proven |= len(errors) < len(found)
                code = exit_code(found)
                for each in found:
                    _write(each, monotonic() - began, report_format)
            except BaseException as error:
                # A library in which the signal's exception is raised may replace it: DuckDB, an import.
                if is_proving and ended.is_set():
                    break
                is_proving = False
                if not isinstance(error, LakeproofError) or not (has_proven or error.retryable):
                    raise
                code = error.exit_code
                _write_error(error, report_format)
            ended.wait(max(every - (monotonic() - began), 0))
    return code


def _write(found: Verification, seconds: float, report_format: ReportFormat) -> None:
    if found.error:
        _write_error(found.error, report_format, found.stream)
        return
    proof = found.proof
    if report_format is ReportFormat.JSON:
        told = {
            "stream": found.stream,
            "proof": proof.number or None if proof else None,
            "kind": proof.kind if proof else None,
            "clean": found.clean,
            "complete": found.complete,
            "faults": found.faults,
            "seconds": round(seconds, 3),
        }
        _line(json.dumps(told, ensure_ascii=False))
        return
    read = sum(each["files_read"] for result in found.of("proof") for each in result.facts["tables"])
    outcome = "clean" if found.clean else count_of(found.faults, "fault")
    when = f"{proof.proven_at:%Y-%m-%d %H:%M:%S}" if proof else ""
    of = f"proof {proof.number}" if proof and proof.number else "not in the book"
    _line(f"{when} {found.stream}: {outcome}; {count_of(read, 'data file')} read in {seconds:.1f} s ({of})")
    for problem in () if found.clean else _first_faults(found):
        _line(f"  {problem}")


def _first_faults(found: Verification) -> list[str]:
    texts = []
    for results in found.results.values():
        for result in results:
            texts += [f"{each.place}: {each.what}" for each in result.faults] + list(result.problems)
    return texts[:5] + ["see `reader verify`"] * (len(texts) > 5)


def _write_error(error: LakeproofError, report_format: ReportFormat, stream: str | None = None) -> None:
    if report_format is ReportFormat.JSON:
        of = {"stream": stream} if stream else {}
        _line(json.dumps({**of, "error": error.message, "hint": error.hint}, ensure_ascii=False))
    else:
        _line(f"{error.message} {error.hint or ''}".strip())


def _line(text: str) -> None:
    sys.stdout.write(f"{printable(text)}\n")
    sys.stdout.flush()
