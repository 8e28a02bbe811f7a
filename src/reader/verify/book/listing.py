"""``reader proofs``: list the book of proofs for people and programs."""

import json
from typing import TextIO

from lakeproof.errors import UnavailableError
from lakeproof.settings import Settings
from lakeproof.state.proofs import Proof, ProofOutcome, proofs_of
from reader.output import console, print_counts
from reader.verify.book.book import read_book

_SHOWN = 20


def write_proofs(settings: Settings, stream: str | None, out: TextIO, *, as_json: bool) -> None:
    """Write the proofs of a stream, or of all streams, newest first."""
    found: list[Proof] | None = read_book(settings, lambda connection: proofs_of(connection, stream))
    if found is None:
        raise UnavailableError(
            "There is no book of proofs: the state database does not exist, or is of another version.",
            "Run the consumer, which creates it, then `reader verify`. Check LAKE_LANDING_LOG_URI.",
        )
    if as_json:
        json.dump([_as_json(proof) for proof in found], out, ensure_ascii=False, indent=1)
        out.write("\n")
        return
    _print(found)


def _as_json(proof: Proof) -> dict[str, object]:
    return {
        "stream": proof.stream,
        "number": proof.number,
        "kind": proof.kind,
        "since": proof.since,
        "began_at": proof.began_at.isoformat(),
        "proven_at": proof.proven_at.isoformat(),
        "proven_by": proof.proven_by,
        "outcome": proof.outcome,
        "faults": proof.faults,
        "versions": dict(proof.versions),
        "reached": dict(proof.reached),
        "digest": proof.digest,
    }


def _print(found: list[Proof]) -> None:
    from rich.table import Table
    from rich.text import Text

    out, grid = console(), Table("stream", "proof", "of", "result", "finished (UTC)", "seconds", "by", "digest")
    for proof in found[:_SHOWN]:
        of = f"since {proof.since}" if proof.since else "all"
        result = "clean" if proof.outcome is ProofOutcome.CLEAN else f"failed: {proof.faults:,}"
        seconds = f"{(proof.proven_at - proof.began_at).total_seconds():,.1f}"
        when = f"{proof.proven_at:%Y-%m-%d %H:%M:%S}"
        style = "" if proof.outcome is ProofOutcome.CLEAN else "red"
        grid.add_row(
            proof.stream, str(proof.number), of, Text(result, style), when, seconds, proof.proven_by, proof.digest[:12]
        )
    print_counts(out, grid)
    if len(found) > _SHOWN:
        out.print(f"and {len(found) - _SHOWN:,} older; use --json to list all")
    if not found:
        out.print("The book has no proof yet. Run `reader verify`.")
