"""Summary of a stream's tables, also shown by ``lakeproof demo`` and ``make start``."""

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lakeproof.catalog import catalog_errors
from lakeproof.contracts import Contract, load_contract
from lakeproof.contracts.duration import duration_text
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.gold.model import WINDOW_START
from lakeproof.gold.product_file import load_products
from lakeproof.gold.samples import Samples
from lakeproof.gold.samples_file import load_all_samples
from lakeproof.kafka.recorded import Recorded, recorded_topic
from lakeproof.kafka.topic import Topic
from lakeproof.landing.zone import landing_zone
from lakeproof.settings import Settings
from lakeproof.standard_streams import printable
from lakeproof.tables.names import (
    ATTEMPT,
    INGESTED_AT,
    MICRO_BATCH_ID,
    POSITION,
    REASONS,
    REPLAY,
    SOURCE,
    gold_table,
    samples_tables,
    silver_tables,
    stream_tables,
)
from lakeproof.wording import count_of
from reader.catalogs import Catalog, catalog_of, table_of
from reader.connect import Session, connect
from reader.letters import has_attempts, not_closed
from reader.output import console
from reader.tables import table_facts
from reader.views import DEAD_LETTERS_TEXT, identifier

_POLL_SECONDS = 0.5
_EXAMPLE_WIDTH = 60
_REASONS = 10  # rows of dead letters that are shown


@dataclass(frozen=True)
class StreamCounts:
    """Numbers of landed files or messages of a stream, and of rows in its tables."""

    landed: int  # files in the landing zone, or messages in the topic
    what: str  # file or message
    bronze: int
    dead_letters: int
    empty: tuple[str, ...]  # tables of silver and gold without rows

    def readable(self, before: "StreamCounts") -> bool:
        """Return whether bronze has new rows and the later tables have rows; dead letters are optional."""
        return self.bronze > before.bronze and not self.empty

    def __str__(self) -> str:
        counts = (
            f"{count_of(self.landed, self.what)} landed · {count_of(self.bronze, 'bronze row')} · "
            f"{count_of(self.dead_letters, 'dead letter')}"
        )
        return " · ".join([counts, *(f"{name} is empty" for name in self.empty)])


def wait_for_rows(settings: Settings, stream: str, timeout: float, *, new: bool = False) -> None:
    """Show a live line until the tables of `stream` have rows, or raise LakeproofError at the timeout."""
    look = _watch(settings, load_contract(settings.contracts, stream))
    before = look()
    if not new:
        before = replace(before, bronze=0)
    start = time.monotonic()
    with Live(Text("Waiting for rows …"), console=Console(stderr=True), transient=True) as live:
        while not (now := look()).readable(before):
            waited = time.monotonic() - start
            if waited >= timeout:
                break
            live.update(Text(f"{now} · {waited:.0f} s"))
            time.sleep(_POLL_SECONDS)
    if not now.readable(before):
        program, does = ("consumer", "read") if now.landed else ("producer", "written")
        raise LakeproofError(
            f"Timed out after {timeout:.0f} s waiting for rows in the tables: {now}.",
            f"Check why nothing is {does}: the log of the {program} in {settings.logs}.",
        )


def print_summary(settings: Settings, stream: str, since: datetime | None = None) -> None:
    """Print counts of bronze, dead letters, silver and gold of `stream`, and what to try next."""
    contract = load_contract(settings.contracts, stream)
    out = console()
    with connect(settings) as session:
        # A transaction reads one state of each table while the consumer commits. Silver's ledger is read first: it must
        # not contain verdicts on rows that are not in bronze yet.
        session.sql("BEGIN TRANSACTION READ ONLY")
        silver = _silver(session, stream) if _has_table(settings, silver_tables(stream).ledger) else None
        landed = _landed(session, stream, contract.event_time, _recorded(settings, stream), since)
        dead = _dead_letters(session, stream, since, has_attempts(settings, stream))
        products = load_products(settings.gold, [stream], lambda _: contract)
        gold = _gold(session, [each.name for each in products if _has_table(settings, gold_table(each.name))])
        of_samples = load_all_samples(settings.gold, [stream], lambda _: contract)
        sampled = _sampled(session, [each for each in of_samples if _has_both(settings, each)])
        warned = _too_bad(session, settings, contract)
    for table in filter(None, (landed, dead, silver, gold, sampled)):
        out.print(table)
    if warned:
        out.print(Text(warned, "bold red"), soft_wrap=True)
    _print_next(out, stream, demo=(settings.home / ".demo").is_symlink())


def _watch(settings: Settings, contract: Contract) -> Callable[[], StreamCounts]:
    catalog = catalog_of(settings)
    zone = landing_zone(settings, contract.stream)
    names = stream_tables(contract.stream)
    products = load_products(settings.gold, [contract.stream], lambda _: contract)
    # If these tables are filled at all, they exist before bronze has its first row.
    others = [silver_tables(contract.stream).kept, *(gold_table(product.name) for product in products)]

    def look() -> StreamCounts:
        recorded = _recorded(settings, contract.stream)
        return StreamCounts(
            _messages(settings, recorded) if recorded else sum(1 for _ in zone.files()),
            "message" if recorded else "file",
            _rows(catalog, names.bronze) or 0,
            _rows(catalog, names.dead_letters) or 0,
            tuple(name for name in others if _rows(catalog, name) == 0),
        )

    return look


def _recorded(settings: Settings, stream: str) -> Recorded | None:
    """Return the topic of a stream; None for files, or before the first run."""
    with catalog_errors():
        ledger = table_of(catalog_of(settings), stream_tables(stream).ledger)
        return recorded_topic(ledger.properties) if ledger else None


def _messages(settings: Settings, recorded: Recorded) -> int:
    """Return the number of offsets after the stream's start; 0 if the brokers do not respond."""
    topic = Topic(settings.kafka, recorded.topic)
    try:
        _, partitions = topic.identity()
        extents = topic.extents(partitions)
    except UnavailableError:
        return 0
    return sum(max(extent.end - recorded.start.next(partition), 0) for partition, extent in extents.items())


def _rows(catalog: Catalog, name: str) -> int | None:
    """Return the number of rows of a table; None if it does not exist."""
    with catalog_errors():
        table = table_of(catalog, name)
        return table_facts(name, table).rows if table else None


def _written(since: datetime | None) -> tuple[str, str]:
    """Return the SQL condition for rows since a time, and a text for the title."""
    if since is None:
        return "true", ""
    return f"{INGESTED_AT} >= '{since.isoformat()}'", f", since {since:%H:%M:%S} UTC"


def _landed(session: Session, stream: str, event_time: str, recorded: Recorded | None, since: datetime | None) -> Table:
    name = stream_tables(stream).bronze
    when = ".".join(identifier(name) for name in event_time.split("."))
    # Bounds as text from DuckDB: bronze may contain years that Python's datetime does not support.
    condition, title = _written(since)
    ((rows, files, micro_batches, first, last),) = session.fetch(
        f"SELECT count(*), count(DISTINCT {SOURCE}), count(DISTINCT {MICRO_BATCH_ID}), "
        f"min({when})::VARCHAR, max({when})::VARCHAR FROM {name} WHERE {condition}",
    )
    origin, sources = (f", from the topic {recorded.topic}", "messages") if recorded else ("", "files")
    title = f"Records: {name}{origin}{title}"
    table = Table("rows", sources, "micro-batches", "first event", "last event", title=title)
    table.add_row(f"{rows:,}", f"{files:,}", f"{micro_batches:,}", first or "none", last or "none")
    return table


def _dead_letters(session: Session, stream: str, since: datetime | None, replayed: bool) -> Table:
    """Return a table of dead letters that are not closed, by reason and path.

    Dead letters with several reasons are in several rows, but count once in the total.
    """
    names = stream_tables(stream)
    name = names.dead_letters
    condition, title = _written(since)
    rows = not_closed(name, names.attempts if replayed else None)
    total = session.count(f"{rows} WHERE {condition}")
    found = session.fetch(
        rf"SELECT reason.code AS code, regexp_replace(coalesce(reason.path, ''), '\[\d+\]', '[]', 'g') AS path, "
        f"count(DISTINCT ({SOURCE}, {POSITION}, {ATTEMPT})) AS letters, "
        f"coalesce(arg_min(reason.detail, ({SOURCE}, {POSITION})), '') AS example "
        f"FROM (SELECT {SOURCE}, {POSITION}, {ATTEMPT}, unnest({REASONS}) AS reason FROM {rows} WHERE {condition}) "
        "GROUP BY ALL ORDER BY letters DESC, code, path"
    )
    table = Table("reason", "path", "dead letters", "example", title=f"Dead letters: {name}{title}", show_footer=True)
    table.columns[0].footer = "total"
    table.columns[2].justify, table.columns[2].footer = "right", f"{total:,}"
    # Shown completely on a narrow terminal, except for the end of the example.
    table.columns[1].overflow = "fold"
    table.columns[3].no_wrap, table.columns[3].max_width = True, _EXAMPLE_WIDTH
    notes = []
    if replayed and (closed := session.count(f"{name} WHERE {condition}") - total):
        notes.append(f"without {count_of(closed, 'dead letter')} that a replay closed")
    if len(found) > _REASONS:
        notes.append(f"and {len(found) - _REASONS:,} more reasons and paths")
    if sum(letters for _, _, letters, _ in found) > total:
        notes.append("a dead letter with several reasons is in several rows")
    table.caption = "; ".join(notes)
    for code, path, letters, example in found[:_REASONS]:
        table.add_row(code, Text(printable(path)), f"{letters:,}", Text(printable(example)))
    return table


def _too_bad(session: Session, settings: Settings, contract: Contract) -> str:
    """Return a warning if the newest units in the ledger would trip the contract's breaker; empty otherwise."""
    breaker = contract.breaker
    ledger = stream_tables(contract.stream).ledger
    with catalog_errors():
        # In a lake of an earlier version, the next run adds the column.
        found = table_of(catalog_of(settings), ledger)
        has_replays = found is not None and REPLAY in found.columns
    landed = f"{REPLAY} IS NULL" if has_replays else "true"
    newest = f"(SELECT max({INGESTED_AT}) FROM {ledger} WHERE {landed})"
    seconds = int(breaker.over.total_seconds()) if breaker.over else 0
    ((bad, units),) = session.fetch(
        f"SELECT coalesce(sum(units - bronze), 0)::BIGINT, coalesce(sum(units), 0)::BIGINT FROM {ledger} "
        f"WHERE {landed} AND {INGESTED_AT} >= {newest} - INTERVAL {seconds} SECONDS"
    )
    if not bad or not breaker.trips(bad, units):
        return ""
    when = f"in the {duration_text(breaker.over)} before the newest" if breaker.over else "in the newest micro-batch"
    return (
        f"Too many bad units: {bad:,} of {units:,} {when} ({bad / units:.1%}; the breaker of the contract trips at "
        f"{breaker.share.normalize():f} of {breaker.units:,} units or more). Run `consumer status {contract.stream}`."
    )


def _has_table(settings: Settings, name: str) -> bool:
    with catalog_errors():
        return table_of(catalog_of(settings), name) is not None


def _silver(session: Session, stream: str) -> Table:
    """Return a table of verdicts on rows of bronze, from the ledger."""
    names = silver_tables(stream)
    counts = ("kept", "duplicates", "conflicts", "late")
    sums = ", ".join(f"coalesce(sum({name}), 0)::BIGINT" for name in counts)
    (decided,) = session.fetch(f"SELECT {sums} FROM {names.ledger}")
    rows = session.count(stream_tables(stream).bronze)
    table = Table(*counts, "not decided yet", title=f"Silver: {names.kept}")
    table.add_row(*(f"{number:,}" for number in (*decided, rows - sum(decided))))
    return table


def _gold(session: Session, products: list[str]) -> Table | None:
    table = Table("product", "windows", "first window", "last window", title="Gold: data products")
    table.columns[1].justify = "right"
    for name in products:
        ((rows, *times),) = session.fetch(
            f"SELECT count(*), min({WINDOW_START})::VARCHAR, max({WINDOW_START})::VARCHAR FROM {gold_table(name)}"
        )
        table.add_row(name, f"{rows:,}", *(time or "none" for time in times))
    return table if products else None


def _has_both(settings: Settings, product: Samples) -> bool:
    names = samples_tables(product.name, product.anomalies)
    return _has_table(settings, names.samples) and _has_table(settings, names.anomalies)


def _sampled(session: Session, products: list[Samples]) -> Table | None:
    table = Table("product", "samples", "windows", "last window", "anomalies", title="Gold: samples and anomalies")
    for index in (1, 2, 4):
        table.columns[index].justify = "right"
    for product in products:
        names = samples_tables(product.name, product.anomalies)
        ((samples, windows, last, anomalies),) = session.fetch(
            f"SELECT count(*), count(DISTINCT {WINDOW_START}), max({WINDOW_START})::VARCHAR, "
            f"(SELECT count(*) FROM {names.anomalies}) FROM {names.samples}"
        )
        table.add_row(product.name, f"{samples:,}", f"{windows:,}", last or "none", f"{anomalies:,}")
    return table if products else None


def _print_next(out: Console, stream: str, *, demo: bool) -> None:
    reader = _reader()
    query = f"select * from {stream_tables(stream).bronze} limit 5"
    letters = f"select reasons, raw from {DEAD_LETTERS_TEXT}.{stream} limit 5"
    # Without a clone, there is no Makefile.
    in_clone = Path("deploy/demo/duckdb.sh").exists()
    commands = {
        "make page" if in_clone else f"{reader} page --serve": "a page of the lake in the browser",
        "make duckdb" if in_clone else f"{reader} shell": "DuckDB's shell with the tables of the lake",
        f'{reader} sql "{query}"': "one statement",
        f'{reader} sql "{letters}"': "dead letters as text",
    }
    if in_clone:
        commands |= {"make consumer-logs": "follow the consumer", "make stop": "stop producer and consumer"}
    else:
        commands |= {f"{reader} verify {stream}": "recount what landed"}
        commands |= {"lakeproof demo stop": "stop producer and consumer"} if demo else {}
    out.print("Next:")
    for command, what in commands.items():
        # A line each: side by side, they are wider than many terminals.
        out.print(Text(f"  # {what}", "dim"), Text(f"  {command}", "bold"), sep="\n", soft_wrap=True)


def _reader() -> str:
    """Return the command of this program: its name, or its path if it is not on PATH."""
    if shutil.which("reader"):
        return "reader"
    path = Path(sys.executable).with_name("reader")
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
