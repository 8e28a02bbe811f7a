"""The places of a stream's data: tables and their folders, landing zone, archives, published files and topics."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import astuple
from functools import cached_property

from pyiceberg.catalog import Catalog

from consumer.layers.registry import layers_of
from consumer.layers.sinks.topic import sink_name
from consumer.maintenance.folders import Folders, folders_of, is_named, unrecognized
from consumer.removal.retain_files import archive_of, sources_in
from consumer.scope import Scope
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.contracts import Contract, load_contract
from lakeproof.errors import LakeproofError
from lakeproof.gold.product_file import load_products
from lakeproof.landing.root import archives_of
from lakeproof.landing.zone import LandingZone, zone_at
from lakeproof.settings import Settings
from lakeproof.state.lease import QueryState, alerts_lease, state_of
from lakeproof.state.sink_positions import SinkPositions
from lakeproof.storage import Storage, StoredFile
from lakeproof.tables.names import StreamTables, gold_table, stream_tables
from lakeproof.tables.of_stream import tables_of_stream

_TOPIC = "kafka:"
_METADATA = ".metadata.json"


class Places:
    """Everything of a stream that may contain data of a person, as it is now."""

    def __init__(self, settings: Settings, stream: str) -> None:
        self.settings = settings
        self.stream = stream
        self.contract: Contract = load_contract(settings.contracts, stream)
        self.names: StreamTables = stream_tables(stream)
        self.of_bronze = {*astuple(self.names)}
        self.catalog: Catalog = open_catalog(settings)

    def ledger_properties(self) -> Mapping[str, str]:
        """Return the properties of the ledger, which record where the stream comes from."""
        with catalog_errors():
            return self.catalog.load_table(self.names.ledger).properties

    def tables(self) -> set[str]:
        """Return the names of the stream's tables, whether they exist or not."""
        return {*tables_of_stream(self.settings, self.stream)}

    def existing(self) -> list[str]:
        """Return the names of the stream's tables that exist."""
        with catalog_errors():
            return [name for name in tables_of_stream(self.settings, self.stream) if self.catalog.table_exists(name)]

    def locations(self, names: Iterable[str]) -> dict[str, str]:
        """Return the folders of existing tables, by name."""
        with catalog_errors():
            return {name: self.catalog.load_table(name).location() for name in names}

    def snapshots(self) -> dict[str, int | None]:
        """Return the current snapshot of each existing table; None if it has none."""
        found = {}
        for name in self.existing():
            with catalog_errors():
                snapshot = self.catalog.load_table(name).current_snapshot()
            found[name] = snapshot.snapshot_id if snapshot else None
        return found

    @cached_property
    def folders(self) -> Folders:
        """The folders of all tables when this is first read: an erasure reads it after the rebuild."""
        with catalog_errors():
            return folders_of(self.settings, self.catalog)

    @cached_property
    def known_tables(self) -> set[str]:
        """The tables of all streams here."""
        known: set[str] = set()
        for stream in self.settings.streams:
            with suppress(LakeproofError):  # its tables are searched, as if the file were gone
                known |= tables_of_stream(self.settings, stream).keys()
        return known

    def of_no_product(self) -> dict[str, str]:
        """Return the folders of tables of silver and gold that no rebuild fills, since their file is gone, by name."""
        known = self.known_tables
        with catalog_errors():
            layers = [each for each in ("silver", "gold") if self.catalog.namespace_exists(each)]
            found = {".".join(each): each for layer in layers for each in self.catalog.list_tables(layer)}
            return {name: self.catalog.load_table(each).location() for name, each in found.items() if name not in known}

    def unrecognized(self, locations: Mapping[str, str]) -> list[str]:
        """Return folders that may be of replaced tables, where the server does not name folders after tables."""
        if all(is_named(name, location) for name, location in locations.items()):
            return []
        with catalog_errors():
            return unrecognized(self.settings, self.folders, locations)

    def archives(self) -> list[LandingZone]:
        """Return the archives that retention has ever copied files of the stream to, and that of the contract."""
        found = [zone_at(root, self.settings.s3) for root in archives_of(self.ledger_properties())]
        retention = self.contract.retention
        of_contract = archive_of(self.settings, self.stream, retention.archive if retention else None)
        return found + [each for each in (of_contract,) if each and each not in found]

    def landed(self, zone: LandingZone) -> tuple[list[StoredFile], int]:
        """Return the files that the stream reads or has read, and the number of others, below its own address."""
        listed = dict(zone.list())
        others = {name for name, file in listed.items() if zone.is_own and zone.ignores(name, file)}
        with catalog_errors():
            others -= sources_in(self.catalog.load_table(self.names.ledger), others).keys()
        return [file for name, file in listed.items() if name not in others], len(others)

    def published(self, zone: LandingZone) -> dict[str, list[StoredFile]]:
        """Return the published files of the stream's products, and of products whose file is gone."""
        own = [each.name for each in load_products(self.settings.gold, [self.stream], lambda _: self.contract)]
        known = self.known_tables
        found: dict[str, list[StoredFile]] = {product: [] for product in own}
        for name, file in zone.list():
            product = name.partition("/")[0]
            if product in own or gold_table(product) not in known:
                found.setdefault(product, []).append(file)
        return found

    def sent_topics(self, scope: Scope) -> set[str]:
        """Return the topics that tables or alerts of the stream, or of no stream here, were ever sent to."""
        database = self.settings.state.database
        positions = SinkPositions(database)
        of_others = self.known_tables - self.tables()
        names = positions.tables() - of_others  # also of products whose file and table are gone
        sent = {sink.removeprefix(sink_name(name, "")) for name in names for sink in positions.sinks_of(name)}
        have_run = (
            each for each in scope.samples if state_of(database, alerts_lease(each.name)) is not QueryState.NEVER
        )
        return sent | {each.alerts.topic for each in have_run if each.alerts}


def topics_to_send(scope: Scope) -> set[str]:
    """Return the topics that tables or alerts of a stream will be sent to."""
    alerts = {each.alerts.topic for each in scope.samples if each.alerts}
    writes = (place for layer in layers_of(scope) for place in layer.writes)
    return alerts | {place.removeprefix(_TOPIC) for place in writes if place.startswith(_TOPIC)}


def files_with_values(storage: Storage) -> Iterator[StoredFile]:
    """Yield the files of a table except metadata, whose sizes and counts may look like a person's number."""
    return (file for file in storage.list() if not file.uri.endswith(_METADATA))
