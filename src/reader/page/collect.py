"""Read the content of the page from the lake: metadata and ledgers first, then a few rows; bronze is not read."""

import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version

from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import Contract, load_contract
from lakeproof.contracts.model import DerivedFrom, type_name
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.gold.model import Publish
from lakeproof.gold.product_file import load_products
from lakeproof.gold.samples_file import load_all_samples
from lakeproof.history.applied import Applied, applied_contracts
from lakeproof.judge.batch import Judge
from lakeproof.kafka.recorded import recorded_topic
from lakeproof.settings import Settings
from lakeproof.state.lease import gold_lease, silver_lease
from lakeproof.state.proofs import Proof
from lakeproof.tables.evolution import lacking
from lakeproof.tables.expired import expired_of
from lakeproof.tables.names import (
    REPLAY,
    gold_query,
    gold_table,
    samples_tables,
    silver_query,
    silver_tables,
    stream_tables,
)
from lakeproof.tables.schemas import bronze_schema
from reader.catalogs import (
    Catalog,
    Frozen,
    NewestSnapshots,
    catalog_of,
    contract_is_missing,
    streams_without_contract,
    table_of,
)
from reader.connect import Session, connect
from reader.page import ledgers, state
from reader.page.health import Facts, problems
from reader.page.layers import Layer, growth_of, layer_rows
from reader.page.model import (
    ContractFacts,
    FieldRow,
    Growth,
    Ledger,
    Number,
    Page,
    Problem,
    Reasons,
    StreamPage,
)
from reader.page.products import samples_facts, windows_facts
from reader.page.reasons import MOST, most_frequent, with_examples
from reader.tables import table_facts
from reader.verify.tables.layers import newest_marker


def collect(settings: Settings, names: Sequence[str]) -> Page:
    """Read the content of the page for the given streams, or for all that have tables."""
    began = time.monotonic()
    for name in names:
        load_contract(settings.contracts, name)
    # Load all tables before the session starts: the session would load some itself, in another order.
    catalog = Frozen(catalog_of(settings))
    with catalog_errors():
        lakes = [_Lake(settings, catalog, name) for name in names] if names else list(_with_tables(settings, catalog))
    with connect(settings, NewestSnapshots(catalog)) as session, ThreadPoolExecutor(1) as beside:
        pages = [lake.page(session, beside) if isinstance(lake, _Lake) else lake for lake in lakes]
    lake = settings.catalog.warehouse_uri
    return Page(lake, datetime.now(UTC), time.monotonic() - began, version("lakeproof"), pages)


def _with_tables(settings: Settings, catalog: Catalog) -> "Iterator[_Lake | StreamPage]":
    """Yield the streams with tables; if one has no valid contract, a page that only says so."""
    lacking = streams_without_contract(settings, catalog)
    for stream in sorted([*settings.streams, *lacking]):
        try:
            lake = _Lake(settings, catalog, stream)
        except UsageError as error:
            names = stream_tables(stream)
            if any(table_of(catalog, name) for name in (names.ledger, names.dead_letters, names.bronze)):
                what = contract_is_missing(stream) if stream in lacking else error
                text = f"{what.message} {what.hint}".strip().rstrip(".")
                yield StreamPage(stream, [Problem(text)], "", "file")
            continue
        if lake.has_tables:
            yield lake


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
        names = [samples_tables(each.name, each.anomalies) for each in self.samples]
        of_samples = [name for each in names for name in (each.samples, each.anomalies)]
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
        shown = self._reasons(session, reasons)
        made = [
            *(windows_facts(session, each, self.tables, self.reading) for each in products),
            *(
                samples_facts(session, each, self.tables, self.reading, has_silver=self.silver.kept in self.tables)
                for each in samples
            ),
        ]
        known, outside = looking.result()
        waits = state.waiting(session, outside, end, known.files)
        proof = next(iter(known.proofs), None)
        fresh = layer_rows(layers, waits)
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
            shown,
            max(len(reasons) - MOST, 0),
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

    def _layers(self, products: Sequence[str], final: AbstractSet[str]) -> Iterator[Layer]:
        asked = [
            ("bronze", self.names.bronze, bronze_query(self.stream)),
            ("dead letters", self.names.dead_letters, bronze_query(self.stream)),
            ("ledger", self.names.ledger, bronze_query(self.stream)),
            ("silver", self.silver.kept, silver_query(self.stream)),
            *(("final" if name in final else "gold", gold_table(name), gold_query(name)) for name in products),
        ]
        for layer, name, query in asked:
            if table := self.tables.get(name):
                yield Layer(layer, name, query, table)

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
        shown = most_frequent(session, found)
        if shown and self.names.dead_letters in self.tables:
            with self.reading(self.names.dead_letters):
                return with_examples(session, self.names.dead_letters, lambda: self._judge, shown)
        return shown

    @cached_property
    def _judge(self) -> Judge:
        return Judge(self.contract, self.settings.limits, self.settings.judge)

    def _growth(self) -> Sequence[Growth]:
        return [growth_of(name, table) for name, table in sorted(self.tables.items())]


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
