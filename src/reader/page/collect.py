"""Read the content of the page from the lake: metadata and ledgers first, then a few rows; bronze is not read."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from importlib.metadata import version
from typing import Any

from lakeproof.catalog import catalog_errors, open_catalog, quoted
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import Contract, load_contract
from lakeproof.contracts.model import DerivedFrom, type_name
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.gold.model import Product, Publish
from lakeproof.gold.product_file import load_products
from lakeproof.gold.samples import DETECTED_AT, Samples
from lakeproof.gold.samples_file import load_all_samples
from lakeproof.history.applied import Applied, applied_contracts
from lakeproof.judge.batch import Judge
from lakeproof.kafka.recorded import recorded_topic
from lakeproof.settings import Settings
from lakeproof.state.lease import gold_lease, silver_lease
from lakeproof.state.proofs import Proof
from lakeproof.tables.columns import lacking
from lakeproof.tables.expired import expired_of
from lakeproof.tables.names import (
    MARKER,
    MICRO_BATCH_ID,
    POSITION,
    RAW,
    REASONS,
    REPLAY,
    SOURCE,
    gold_query,
    gold_table,
    samples_tables,
    silver_query,
    silver_tables,
    stream_tables,
)
from lakeproof.tables.schemas import bronze_schema
from reader.catalogs import Catalog, Frozen, NewestSnapshots, catalog_of, table_of
from reader.connect import Session, connect
from reader.dead_letters.places import excerpt, find_place
from reader.metadata import TableMetadata
from reader.page import ledgers, state
from reader.page.health import Facts, problems
from reader.page.model import (
    ContractFacts,
    FieldRow,
    Growth,
    LayerRow,
    Ledger,
    Number,
    Page,
    ProductFacts,
    Reasons,
    StreamPage,
)
from reader.page.outlook import after_replay
from reader.plot.device import device_plot
from reader.plot.series import NothingToDrawError, newest_windows
from reader.tables import table_facts
from reader.verify.tables.accounts import CODES
from reader.verify.tables.layers import newest_marker
from reader.views import identifier

_REASONS = 12  # number of reason sets to show; the first _EXAMPLES have an example
_EXAMPLES = 8
_EXAMPLE_BYTES = 1 << 20
_SMALL_BYTES, _SCANNED = 16_384, 500  # maximum size and number of dead letters in the first scan of a micro-batch
_EXCERPT = 240  # characters
_WINDOWS = 96
_LINES = 3
_ANOMALIES = 5


def collect(settings: Settings, names: Sequence[str]) -> Page:
    """Read the content of the page for the given streams, or for all that have tables."""
    began = time.monotonic()
    for name in names:
        load_contract(settings.contracts, name)
    # Load all tables before the session starts: the session would load some itself, in another order.
    catalog = Frozen(catalog_of(settings))
    with catalog_errors():
        lakes = [_Lake(settings, catalog, name) for name in names or _known(settings)]
    with connect(settings, NewestSnapshots(catalog)) as session, ThreadPoolExecutor(1) as beside:
        pages = [lake.page(session, beside) for lake in lakes if names or lake.has_tables]
    lake = settings.catalog.warehouse_uri
    return Page(lake, datetime.now(UTC), time.monotonic() - began, version("lakeproof"), pages)


def _known(settings: Settings) -> Sequence[str]:
    return sorted(path.stem for path in settings.contracts.glob("*.yaml"))


@dataclass(frozen=True)
class _Layer:
    """A table, and the query that fills it."""

    layer: str  # `final`: the table waits until windows are final
    name: str
    query: str
    table: TableMetadata

    @property
    def next_number(self) -> int | None:
        """The first micro-batch that is not in the table; None before the first commit."""
        marker = newest_marker(self.table, self.query)
        return int(marker["micro_batch_id"]) + 1 if marker else None

    def commits(self) -> Iterator[tuple[int, datetime]]:
        """Yield the newest micro-batch of each commit and the time of the commit, oldest first."""
        for snapshot in self.table.snapshots:
            if text := snapshot.summary.get(MARKER + self.query):
                yield int(json.loads(text)["marker"]["micro_batch_id"]), _time(snapshot.timestamp_ms)


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


class _Lake:
    """The tables of a stream in the catalog; the tables that are filled last are loaded first."""

    def __init__(self, settings: Settings, catalog: Catalog, stream: str) -> None:
        self.settings = settings
        self.stream = stream
        self.names = stream_tables(stream)
        self.silver = silver_tables(stream)
        self.contract = contract = load_contract(settings.contracts, stream)
        self.products = load_products(settings.gold, [stream], lambda _: contract)
        self.samples = load_all_samples(settings.gold, [stream], lambda _: contract)
        of_samples = [name for each in self.samples for name in _names(each)]
        self.own = (self.names.ledger, self.names.dead_letters, self.names.bronze)
        silver = (self.silver.kept, self.silver.conflicts, self.silver.late, self.silver.ledger)
        gold = [*(gold_table(each.name) for each in self.products), *of_samples]
        found = {name: table_of(catalog, name) for name in (*gold, *silver, *self.own, self.names.removals)}
        self.tables = {name: table for name, table in found.items() if table}
        self.broken: dict[str, str] = {}

    @property
    def has_tables(self) -> bool:
        """Whether at least one of the stream's own tables exists."""
        return any(name in self.tables for name in self.own)

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Record a table that cannot be read, such as one with a lost data file, and build the page without it."""
        try:
            yield
        except LakeproofError as error:
            if error.retryable:
                raise
            self.broken[name] = error.message

    def page(self, session: Session, beside: Executor) -> StreamPage:
        """Return the content of the page for the stream; data outside of tables is read in another thread."""
        contract, products, samples = self.contract, self.products, self.samples
        missing = [name for name in self.own if name not in self.tables]
        ledger = self.tables.get(self.names.ledger)
        if ledger is None:
            found = problems(Facts(contract, missing=missing))
            return StreamPage(self.stream, found, "", "file", tables=self._growth())
        recorded = recorded_topic(ledger.properties)
        gold_names = [*(each.name for each in products), *(each.name for each in samples)]
        leases = [silver_lease(self.stream), *map(gold_lease, gold_names)]
        end = newest_marker(ledger, bronze_query(self.stream)).get("end", "")
        rows = table_facts(self.names.ledger, ledger).rows
        looking = beside.submit(state.look, self.settings, self.stream, leases, ledger.properties, recorded, end, rows)
        has_silver = self.silver.ledger in self.tables
        columns = set(ledger.columns)
        ledgers.load(session, self.names.ledger, columns, self.silver.ledger if has_silver else None)
        total = ledgers.summed(session)
        removals = self.names.removals if self.names.removals in self.tables else None
        if removals:
            total = ledgers.without_erased(session, total, removals, self.names)
        final = {each.name for each in products if each.publish is Publish.FINAL} | {each.name for each in samples}
        layers = list(self._layers(gold_names, final))
        with catalog_errors():
            applied = applied_contracts(open_catalog(self.settings), self.stream)
        reasons = ledgers.reasons(session, removals)
        examples = self._reasons(session, reasons)
        made = [
            *(self._product(session, each) for each in products),
            *(self._samples(session, each) for each in samples),
        ]
        known, outside = looking.result()
        waits = state.waiting(session, outside, end, known.files)
        proof = next(iter(known.proofs), None)
        fresh = self._fresh(layers, waits)
        found = problems(
            Facts(
                contract,
                missing=missing,
                total=total,
                counts=self._counts(total),
                broken=self.broken,
                waiting=waits,
                unit="message" if recorded else "file",
                lease=known.lease,
                failures=known.failures,
                paused=known.paused,
                proof=proof,
                bad=ledgers.storm(
                    session,
                    f"(FROM {ledgers.LEDGER} WHERE {REPLAY} IS NULL)",
                    "letters", "units", contract.breaker.share, contract.breaker.units,
                ),
                verdicts={
                    name: ledgers.storm(session, ledgers.SILVER, name, "decided", share, contract.breaker.units)
                    for name, share in Facts.shares.items()
                },
                worst=next(iter(reasons), ""),
                silver_waits=next((each.waiting_since for each in fresh if each.layer == "silver"), None),
                is_applied=not applied or applied[-1].digest == contract.digest,
            )
        )  # fmt: skip
        return StreamPage(
            self.stream,
            found,
            f"the topic {recorded.topic}" if recorded else "files",
            "message" if recorded else "file",
            total,
            self._numbers(total, has_silver, REPLAY in columns, waits.removed),
            made,
            examples,
            max(len(reasons) - _REASONS, 0),
            ledgers.hours(session),
            self._contract(session, contract, applied),
            fresh,
            proof,
            _unproven(proof, self.names.ledger, total.newest),
            self._growth(),
            ledgers.micro_batches(session, dict(layers[0].commits()) if layers else {}),
            key_of(contract),
        )  # fmt: skip

    def _numbers(self, total: Ledger, has_silver: bool, has_replays: bool, removed: int | None) -> Mapping[str, Number]:
        values = {key: getattr(total, key) for key in ("landed", "bronze", "open", "closed")}
        values |= {"expired": removed} if removed else {}
        values |= {"erased": total.erased} if total.erased else {}
        if has_silver:
            values |= {key: getattr(total, key) for key in ("kept", "duplicates", "conflicts", "late", "undecided")}
        own = (self.names.dead_letters, self.silver.conflicts, self.silver.late)
        expired = {name: expired_of(table.properties).rows for name in own if (table := self.tables.get(name))}
        sql = ledgers.flow_sql(self.names, self.silver, has_replays, expired)
        return {
            key: Number(key, what, values[key], rows, counted)
            for key, (what, rows, counted) in sql.items()
            if key in values
        }

    def _layers(self, products: Sequence[str], final: AbstractSet[str]) -> Iterator[_Layer]:
        asked = [
            ("bronze", self.names.bronze, bronze_query(self.stream)),
            ("dead letters", self.names.dead_letters, bronze_query(self.stream)),
            ("ledger", self.names.ledger, bronze_query(self.stream)),
            ("silver", self.silver.kept, silver_query(self.stream)),
            *(("final" if name in final else "gold", gold_table(name), gold_query(name)) for name in products),
        ]
        for layer, name, query in asked:
            if table := self.tables.get(name):
                yield _Layer(layer, name, query, table)

    def _counts(self, total: Ledger) -> Mapping[str, tuple[int, int]]:
        """Return the rows of tables by metadata and by ledger, except while a micro-batch is being committed."""
        if total.is_erasing:
            return {}
        names, silver = self.names, self.silver
        of_bronze = {names.bronze: total.bronze, names.dead_letters: total.letters}
        of_silver = {silver.kept: total.kept, silver.conflicts: total.conflicts, silver.late: total.late}
        found: dict[str, tuple[int, int]] = {}
        for query, ledger, counted in (
            (bronze_query(self.stream), names.ledger, of_bronze),
            (silver_query(self.stream), silver.ledger, of_silver),
        ):
            tables = {name: table for name in (ledger, *counted) if (table := self.tables.get(name))}
            if len({newest_marker(table, query).get("micro_batch_id") for table in tables.values()}) == 1:
                found |= {
                    name: (table_facts(name, table).rows, counted[name] - expired_of(table.properties).rows)
                    for name, table in tables.items()
                    if name in counted
                }
        return found

    def _fresh(self, layers: Sequence[_Layer], waits: state.Waiting) -> Sequence[LayerRow]:
        rows = []
        by_layer = {each.layer: each for each in layers}
        for each in layers:
            snapshot = each.table.current_snapshot()
            last = _time(snapshot.timestamp_ms) if snapshot else None
            behind, since = "", None
            if each.layer == "bronze":
                unit = "unknown" if waits.count is None else f"{waits.count:,} waiting"
                behind, since = unit, waits.since
            elif (before := by_layer.get({"silver": "ledger", "gold": "silver"}.get(each.layer, ""))) is not None:
                lag = max((before.next_number or 0) - (each.next_number or 0), 0)
                behind = f"{lag:,} micro-batch{'' if lag == 1 else 'es'}"
                if lag:
                    later = [at for number, at in before.commits() if number >= (each.next_number or 0)]
                    since = min(later, default=None)
            rows.append(LayerRow(each.layer, each.name, last, behind, since))
        return rows

    def _contract(self, session: Session, contract: Contract, applied: Sequence[Applied]) -> ContractFacts:
        from pyiceberg.schema import Schema

        bronze = self.tables.get(self.names.bronze)
        schema = Schema.model_validate_json(bronze.schema) if bronze else Schema()
        columns = {field.name: str(field.field_type) for field in schema.fields}
        differ = {path.partition(".")[0] for path in lacking(schema, bronze_schema(contract))} if bronze else ()
        fields = [
            FieldRow(
                each.name,
                type_name(each.type),
                each.required,
                columns.get(each.name, ""),
                each.name in differ or not bronze,
                each.description,
            )
            for each in contract.current
        ]
        newest = applied[-1] if applied else None
        return ContractFacts(
            contract.version,
            newest.version if newest else "",
            newest is None or newest.digest == contract.digest,
            contract.drift,
            ledgers.drifted(session),
            fields,
        )

    def _reasons(self, session: Session, found: Mapping[str, int]) -> list[Reasons]:
        most = dict(list(found.items())[:_REASONS])
        hours = ledgers.trends(session, list(most))
        shown = [Reasons(codes, letters, hours[codes]) for codes, letters in most.items()]
        if self.names.dead_letters not in self.tables or not shown:
            return shown
        codes = [each.codes for each in shown[:_EXAMPLES]]
        examples: dict[str, Sequence[Any]] = {}
        with self.reading(self.names.dead_letters):
            examples = self._found(session, codes)
        return [self._with_example(each, examples.get(each.codes)) for each in shown]

    def _found(self, session: Session, codes: Sequence[str]) -> dict[str, Sequence[Any]]:
        """Return a dead letter of each set of reasons."""
        # The ledger has the micro-batch of each set, so only a few files are read. Most lakes have all sets in a few
        # micro-batches: each gets one scan, which ends early. Sets that this scan misses, which are rare or large, get
        # their own scan.
        places = ledgers.newest_place(session, codes)
        together: dict[int, list[str]] = {}
        for each, (number, _) in places.items():
            together.setdefault(number, []).append(each)
        few = f"octet_length({RAW}) < {_SMALL_BYTES} LIMIT {_SCANNED}"
        examples = self._examples(
            session,
            [
                f"(SELECT * FROM ({{}} WHERE {MICRO_BATCH_ID} = {number} AND {_among(sets)} AND {few}) "  # noqa: S608
                "QUALIFY row_number() OVER (PARTITION BY codes) = 1)"
                for number, sets in together.items()
            ],
        )
        rest = {each: number for each, (number, _) in places.items() if each not in examples}
        examples |= self._examples(
            session,
            [f"({{}} WHERE {MICRO_BATCH_ID} = {number} AND {_among([each])} LIMIT 1)" for each, number in rest.items()],
        )
        return examples

    def _examples(self, session: Session, selects: Sequence[str]) -> dict[str, Sequence[Any]]:
        """Return dead letters by set of reasons; ``{}`` in `selects` is replaced by the SELECT and FROM clauses."""
        row = (
            f"SELECT {CODES} AS codes, {REASONS} AS reasons, {RAW}[1:{_EXAMPLE_BYTES}] AS raw, octet_length({RAW}), "  # noqa: S608
            f"{SOURCE}, {POSITION} FROM {self.names.dead_letters}"
        )
        found = session.fetch(" UNION ALL ".join(each.replace("{}", row, 1) for each in selects)) if selects else []
        return {codes: rest for codes, *rest in found}

    def _with_example(self, reasons: Reasons, example: Sequence[Any] | None) -> Reasons:
        if example is None:
            return reasons
        given, raw, size, source, position = example
        first = given[0] if given else {}
        path, detail = first.get("path") or "", first.get("detail") or ""
        part = None if raw is None else excerpt(raw, find_place(raw, path, detail), _EXCERPT)
        return replace(
            reasons,
            detail=detail,
            path=path,
            source=source or "",
            position=position,
            size=size,
            excerpt=part,
            after_replay=after_replay(self._judge, reasons.codes, raw, size),
        )

    @cached_property
    def _judge(self) -> Judge:
        return Judge(self.contract, self.settings.limits, self.settings.judge)

    def _product(self, session: Session, product: Product) -> ProductFacts:
        name = gold_table(product.name)
        facts = ProductFacts(product.name, name, product.description, None)
        if name not in self.tables:
            return facts
        with self.reading(name):
            windows = self._counted(session, product.name, "windows", name)
            facts = replace(facts, windows=windows)
            with suppress(NothingToDrawError):
                facts = replace(facts, plot=newest_windows(session, product, _WINDOWS, _LINES))
        return facts

    def _samples(self, session: Session, samples: Samples) -> ProductFacts:
        names = samples_tables(samples.name, samples.anomalies)
        facts = ProductFacts(samples.name, names.samples, samples.description, None)
        if not {names.samples, names.anomalies} <= self.tables.keys():
            return facts
        device, value = identifier(samples.device.name), identifier(samples.value.name)
        with self.reading(names.samples):
            counts = [
                self._counted(session, samples.name, "samples", names.samples),
                self._counted(session, samples.anomalies, "anomalies", names.anomalies),
            ]
            found = session.fetch(
                f"SELECT {device}::VARCHAR, detector::VARCHAR, {DETECTED_AT}::VARCHAR, {value}::VARCHAR "  # noqa: S608
                f"FROM {names.anomalies} ORDER BY {DETECTED_AT} DESC LIMIT {_ANOMALIES}"
            )
            newest = [dict(zip(("device", "detector", "detected", "value"), row, strict=True)) for row in found]
            facts = replace(facts, windows=counts[0], numbers=counts[1:], anomalies=newest)
            if self.silver.kept in self.tables:
                source = names.anomalies if newest else names.samples
                devices = session.fetch(f"SELECT {device}::VARCHAR FROM {source} WHERE {device} IS NOT NULL LIMIT 1")  # noqa: S608
                with suppress(UsageError):  # silver may be behind
                    facts = replace(facts, plot=device_plot(session, samples, devices[0][0]) if devices else None)
        return facts

    def _counted(self, session: Session, key: str, what: str, table: str) -> Number:
        return Number(f"gold-{key}", f"{what} of {key}", session.count(table), f"SELECT * FROM {table}")  # noqa: S608

    def _growth(self) -> Sequence[Growth]:
        return [growth_of(name, table) for name, table in sorted(self.tables.items())]


def growth_of(name: str, table: TableMetadata) -> Growth:
    """Return the facts of a table, and its growth in the day up to its newest snapshot."""
    facts = table_facts(name, table)
    begin = facts.last_commit - timedelta(days=1) if facts.last_commit else None
    new = [each for each in table.snapshots if begin and _time(each.timestamp_ms) >= begin]
    had = new[0].summary if new else {}

    def before(total: str, added: str, removed: str) -> int:
        """Return a total without the changes of the first commit of the day, which count."""
        now, more, less = (int(had.get(key) or 0) for key in (total, added, removed))
        return now - more + less

    rows = before("total-records", "added-records", "deleted-records")
    rows -= before("total-position-deletes", "added-position-deletes", "removed-position-deletes")
    files = before("total-data-files", "added-data-files", "deleted-data-files")
    size = before("total-files-size", "added-files-size", "removed-files-size")
    return Growth(facts, facts.rows - rows, facts.data_files - files, facts.bytes - size, len(new))


def _among(sets: Sequence[str]) -> str:
    """Return SQL that is true if a dead letter has one of these sets of reasons."""
    return f"{CODES} IN ({', '.join(map(quoted, sets))})"


def _names(samples: Samples) -> Sequence[str]:
    names = samples_tables(samples.name, samples.anomalies)
    return names.samples, names.anomalies


def _unproven(proof: Proof | None, ledger: str, newest: int | None) -> int:
    """Return the number of micro-batches after a proof."""
    before = proof.reached.get("tables", {}).get(ledger, {}).get("before") if proof else None
    return 0 if before is None or newest is None else max(newest + 1 - int(before), 0)


def key_of(contract: Contract) -> str:
    """Return the field for finding an event: its correlation id, or else a primary key of one field."""
    for each in contract.derived:
        if each.derived and each.derived.source is DerivedFrom.CORRELATION:
            return each.name
    return contract.primary_key[0] if len(contract.primary_key) == 1 else ""
