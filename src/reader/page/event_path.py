"""The path of one event from the source to gold; computed for one event on request, since it reads bronze."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lakeproof.catalog import catalog_errors, open_catalog, quoted
from lakeproof.contracts import load_contract
from lakeproof.errors import UsageError
from lakeproof.gold.model import WINDOW_END, WINDOW_START, Product
from lakeproof.gold.product_file import load_products
from lakeproof.kafka.offsets import OFFSET_DIGITS, partition_name, source_name
from lakeproof.kafka.recorded import recorded_topic
from lakeproof.settings import Settings
from lakeproof.tables.names import gold_table, silver_tables, stream_tables
from reader.connect import Session
from reader.page.collect import key_of
from reader.views import identifier

_MOST = 20
_RECEIPT = re.compile(r'(?:\{"topic": ?")?([\w.-]+)(?:/|", ?"partition": ?)(\d{1,19})(?:/|, ?"offset": ?)(\d{1,19})\}?')
_OF_MESSAGE = re.compile(rf"(.+)/(\d+)/(\d{{{OFFSET_DIGITS}}})")

Part = Mapping[str, Any]
"""A table of the page: its title, columns and rows, and a text if it is empty."""


def event_path(settings: Settings, session: Session, stream: str, value: str) -> Sequence[Part]:
    """Return the records with a key value, layer by layer; the value may also be a receipt of the collector."""
    contract = load_contract(settings.contracts, stream)
    key = key_of(contract)
    if not key:
        raise UsageError(f"The stream {stream} has no key.", "Add a primary key to its contract.")
    names, silver = stream_tables(stream), silver_tables(stream)
    with catalog_errors():
        catalog = open_catalog(settings)
        known = {f"{space[0]}.{name}" for space in catalog.list_namespaces() for _, name in catalog.list_tables(space)}
        recorded = recorded_topic(catalog.load_table(names.ledger).properties) if names.ledger in known else None
    products = load_products(settings.gold, [stream], lambda _: contract)
    same = f"{identifier(key)}::VARCHAR = {quoted(value)}"
    receipt = _RECEIPT.fullmatch(value.strip())
    if receipt and recorded and receipt[1] == recorded.topic:
        here = f"_source = {quoted(source_name(receipt[1], int(receipt[2]), int(receipt[3])))}"
        if keys := session.fetch(f"SELECT {identifier(key)}::VARCHAR FROM {names.bronze} WHERE {here}"):
            same = f"{identifier(key)}::VARCHAR = {quoted(keys[0][0])}"
        else:
            columns = "array_to_string(codes, ' + ') AS reasons, state, raw, _position, _micro_batch_id, _landed_at"
            letters = f"SELECT {columns} FROM dead_letters_text.{stream} WHERE {here}"
            found = _part(session, f"In {names.dead_letters}", letters)
            # A key may look like a receipt.
            if found["rows"] or not session.fetch(f"SELECT 1 FROM {names.bronze} WHERE {same} LIMIT 1"):
                nothing = (
                    "Neither in bronze nor a dead letter: it waits, or is from before the beginning of the stream."
                )
                return [found | {"empty": nothing}]
    of_range = f"CASE WHEN regexp_matches(source, '/[0-9]{{{OFFSET_DIGITS}}}$') THEN source[:-{OFFSET_DIGITS + 2}] END"
    time = ".".join(map(identifier, contract.event_time.split(".")))

    def parts() -> Iterator[Part]:
        place = f"_source, _position, _micro_batch_id, _landed_at, _ingested_at, {time} AS event_time"
        rows = f"SELECT {place} FROM {names.bronze} WHERE {same} ORDER BY 3, 1, 2"
        found = _part(session, f"In {names.bronze}", rows)
        messages = [(match, row) for row in found["rows"] if (match := _OF_MESSAGE.fullmatch(row[0]))]
        if messages:
            receipts = [[match[1], match[2], str(int(match[3])), row[3]] for match, row in messages]
            yield {"title": "Receipts", "columns": ["topic", "partition", "offset", "time"], "rows": receipts}
        yield found | {"empty": "Not in bronze: it has not come, waits, or is a dead letter, which has no key."}
        numbers = ", ".join(str(row[2]) for row in found["rows"]) or "-1"
        # For a topic, the ledger has a range of messages for each partition in a micro-batch.
        places = {row[0] for row in found["rows"]} | {partition_name(row[0]) for row in found["rows"]}
        sources = ", ".join(map(quoted, sorted(places))) or "''"
        if silver.kept in known:
            verdicts = (("kept", silver.kept), ("conflict", silver.conflicts), ("late", silver.late))
            each = " UNION ALL ".join(
                f"SELECT '{verdict}' AS verdict, _source, _position FROM {table} WHERE {same}"
                for verdict, table in verdicts
            )
            decided = f"SELECT DISTINCT micro_batch_id FROM {silver.ledger} WHERE micro_batch_id IN ({numbers})"
            yield _part(
                session,
                "Verdict of silver",
                f"SELECT coalesce(verdict, CASE WHEN _micro_batch_id IN ({decided}) THEN 'duplicate' "
                f"ELSE 'not decided yet' END) AS verdict, _source, _position FROM {names.bronze} LEFT JOIN ({each}) "
                f"USING (_source, _position) WHERE {same}",
            )
        yield _part(
            session,
            f"In {names.ledger}",
            f"SELECT source, micro_batch_id, units, bronze, landed_at, _ingested_at FROM {names.ledger} "
            f"WHERE micro_batch_id IN ({numbers}) AND (source IN ({sources}) OR {of_range} IN ({sources})) ORDER BY 1",
        )
        for product in products:
            if silver.kept in known and gold_table(product.name) in known:
                yield _windows(session, product, silver.kept, same, time)

    return list(parts())


def _windows(session: Session, product: Product, kept: str, same: str, time: str) -> Part:
    """Return the windows of a product that contain the event."""
    keys = [(identifier(key.name), ".".join(map(identifier, key.path))) for key in product.keys]
    asked = ", ".join([f"{path} AS wanted_{number}" for number, (_, path) in enumerate(keys)] + [f"{time} AS happened"])
    same_keys = [f"{name} IS NOT DISTINCT FROM wanted_{number}" for number, (name, _) in enumerate(keys)]
    before = "<=" if product.window.session else "<"
    where = " AND ".join([*same_keys, f"happened >= {WINDOW_START}", f"happened {before} {WINDOW_END}"])
    table = gold_table(product.name)
    return _part(
        session,
        f"In {table}",
        f"SELECT gold.* FROM {table} AS gold, (SELECT {asked} FROM {kept} WHERE {same}) WHERE {where}",
    )


def _part(session: Session, title: str, statement: str) -> dict[str, Any]:
    with session.errors():
        result = session.connection.execute(f"{statement} LIMIT {_MOST}")
        columns = [name for name, *_ in result.description]
        rows = [["" if value is None else str(value) for value in row] for row in result.fetchall()]
    return {"title": title, "columns": columns, "rows": rows, "empty": "No rows."}
