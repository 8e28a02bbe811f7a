"""The certificate of an erasure: what was removed and searched, and what remains."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime

from consumer.removal.topics import InTopic
from lakeproof.wording import count_of

INCOMPLETE = 6
"""Exit code of an incomplete erasure."""


@dataclass
class Erased:
    """The result of an erasure of a stream, or of its dry run: the certificate."""

    stream: str
    request: str | None
    keyed_hash: str | None
    begun_at: datetime
    versions: Mapping[str, str]
    completed_at: datetime | None = None
    earlier: list[str] = field(default_factory=list)
    """Ids of earlier erasures with this condition."""
    rows: dict[str, int] = field(default_factory=dict)
    """Number of removed rows, by table."""
    batches: int = 0
    """Number of dead letters that are whole batches, which may also have records of other people."""
    snapshots: dict[str, dict[str, int | None]] = field(default_factory=dict)
    """Current snapshot of each table before and after."""
    rebuilt: list[str] = field(default_factory=list)
    """Tables that were filled again from bronze or silver."""
    landed_files: int = 0
    """Number of removed landed files."""
    archived_files: int = 0
    published_files: int = 0
    """Number of Parquet files of sinks that were removed, and written again from the rebuilt tables."""
    topics: dict[str, InTopic] = field(default_factory=dict)
    """Matches in the topics of sinks and in the topic that the stream reads."""
    folders: list[str] = field(default_factory=list)
    """Folders of replaced tables that were removed."""
    searched: dict[str, int] = field(default_factory=dict)
    """Number of files that were searched without a match, by place."""
    found_in: list[str] = field(default_factory=list)
    """Files that still match the condition."""
    remains: list[str] = field(default_factory=list)
    """What prevents the erasure from being complete, and how to resolve it."""
    elsewhere: list[str] = field(default_factory=list)
    """Places outside this lake that may have copies, and how these disappear."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to do."""
        return not self.remains and not self.found_in


def as_json(done: Erased) -> str:
    """Return the certificate as JSON."""
    return json.dumps({**asdict(done), "complete": done.is_complete}, indent=2, default=str)


def lines(done: Erased, *, dry_run: bool) -> Iterator[str]:
    """Yield the results as lines for people."""
    would = "would be " if dry_run else ""
    if not any(done.rows.values()) and not done.request:
        yield f"{done.stream}: no row of the tables meets the condition."
    for request in done.earlier:
        yield f"  It was erased before, by {request}."
    for table, count in done.rows.items():
        yield f"{table}: {count_of(count, 'row')} {would}removed."
    if done.batches:
        yield (
            f"  {count_of(done.batches, 'dead letter')} of these cannot be read as a record, and may have records of "
            f"others: `consumer replay {done.stream} --salvage` takes what can be read first."
        )
    if dry_run:
        yield "Nothing was changed."
        return
    if done.rebuilt:
        yield f"Filled again: {', '.join(done.rebuilt)}."
    if done.landed_files or done.archived_files:
        yield f"Landed files removed: {done.landed_files:,}; of the archive: {done.archived_files:,}."
    if done.published_files:
        yield f"Published files written again: {done.published_files:,}."
    yield f"{count_of(sum(done.searched.values()), 'file')} were searched, and have nothing of it."
    for uri in done.found_in[:20]:
        yield f"  Still in {uri}"
    for each in done.remains:
        yield f"  Not complete: {each}"
    for each in done.elsewhere:
        yield f"  Elsewhere: {each}"
    if done.request:
        yield f"The erasure {done.request} is {'complete' if done.is_complete else 'not complete'}."
