"""Fill the tables of a layer again beside those that readers use, then replace them."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import SparkSession

from consumer.layers.gold.micro_batches import GoldMicroBatches
from consumer.layers.gold.table import ensure_gold_table
from consumer.layers.samples.micro_batches import SamplesMicroBatches
from consumer.layers.silver.micro_batches import SilverMicroBatches
from lakeproof.catalog import catalog_errors, open_catalog, replace_tables
from lakeproof.contracts import Contract
from lakeproof.errors import UsageError
from lakeproof.gold.model import Product
from lakeproof.gold.samples import Samples
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import Lease, gold_lease, lease, silver_lease
from lakeproof.tables.names import MARKER, REBUILDING, gold_table, samples_tables, silver_tables, stream_tables
from lakeproof.tables.schemas import ensure_namespace, ensure_samples_tables, ensure_silver_tables

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


class _MicroBatches(Protocol):
    def take(self, spark: SparkSession) -> bool: ...


@dataclass(frozen=True)
class Layer:
    """A layer as its rebuild sees it."""

    stream: str
    source: str  # the table that it is filled from
    lease: str
    names: Callable[[str], Sequence[str]]  # its tables, with a suffix; the last one says how far the layer is
    fill: Callable[["Catalog", SparkSession, str, Lease], None]  # fills the tables with that suffix
    resumes: bool = False  # whether an interrupted rebuild is continued


def rebuild(settings: Settings, layer: Layer, session: Callable[[], SparkSession]) -> str:
    """Fill the tables of a layer again; return a line that says what was done.

    The source may grow meanwhile: the next run of the consumer resumes from where this one ends.

    Raises
    ------
    LeaseHeldError
        A consumer fills the layer.
    UsageError
        The source does not exist yet.
    """
    with lease(settings.state.database, layer.lease) as held:
        with catalog_errors():
            catalog = open_catalog(settings)
            if not catalog.table_exists(layer.source):
                raise UsageError(f"{layer.source} does not exist yet.", f"Run `consumer run {layer.stream}` first.")
            suffix = _suffix(catalog, layer)
            is_filled = _is_replacing(catalog, layer.names(suffix))
        if not is_filled:
            layer.fill(catalog, session(), suffix, held)
        with catalog_errors():
            pairs = zip(layer.names(suffix), layer.names(""), strict=True)
            replace_tables(catalog, {new: name for new, name in pairs if catalog.table_exists(new)})
    *others, first = layer.names("")
    tables = " and ".join(filter(None, [", ".join([first, *others[:0:-1]]), *others[:1]]))
    return f"Rebuilt {tables} from {layer.source}. The files of the old tables were not removed."


def silver_layer(settings: Settings, contract: Contract) -> Layer:
    """Silver of a stream. An interrupted rebuild is continued."""
    stream = contract.stream

    def names(suffix: str) -> Sequence[str]:
        tables = silver_tables(stream, suffix)
        return (tables.conflicts, tables.late, tables.ledger, tables.kept)

    def fill(catalog: "Catalog", spark: SparkSession, suffix: str, held: Lease) -> None:
        tables = silver_tables(stream, suffix)
        with catalog_errors():
            ensure_silver_tables(catalog, contract, tables)
        contracts = ContractLog(settings.state.database)
        with closing(SilverMicroBatches(settings, stream, tables, contracts, held)) as micro_batches:
            _take_all(micro_batches, spark)

    return Layer(stream, stream_tables(stream).bronze, silver_lease(stream), names, fill, resumes=True)


def gold_layer(settings: Settings, product: Product) -> Layer:
    """The table of a data product. Most of a rebuild is one micro-batch, so an interrupted one begins again."""

    def fill(catalog: "Catalog", spark: SparkSession, suffix: str, held: Lease) -> None:
        table = gold_table(product.name, suffix)
        with catalog_errors():
            ensure_namespace(catalog, table.split(".")[0])
        ensure_gold_table(spark, product, table)
        contracts = ContractLog(settings.state.database)
        _take_all(GoldMicroBatches(settings, product, table, contracts, held), spark)

    silver = silver_tables(product.stream).kept
    return Layer(
        product.stream, silver, gold_lease(product.name), lambda suffix: (gold_table(product.name, suffix),), fill
    )


def samples_layer(settings: Settings, samples: Samples) -> Layer:
    """The two tables of a product of samples. An interrupted rebuild begins again."""
    tables = partial(samples_tables, samples.name, samples.anomalies)

    def fill(catalog: "Catalog", spark: SparkSession, suffix: str, held: Lease) -> None:
        with catalog_errors():
            ensure_samples_tables(catalog, samples, tables(suffix))
        contracts = ContractLog(settings.state.database)
        _take_all(SamplesMicroBatches(settings, samples, tables(suffix), contracts, held), spark)

    silver = silver_tables(samples.stream).kept
    return Layer(samples.stream, silver, gold_lease(samples.name), lambda suffix: astuple(tables(suffix)), fill)


def new_suffix() -> str:
    """What the names of new tables end with. It differs each time: a table's folder keeps the name of its creation."""
    return f"{REBUILDING}{datetime.now(UTC):%Y%m%d%H%M%S}"


def _take_all(micro_batches: _MicroBatches, spark: SparkSession) -> None:
    while micro_batches.take(spark):
        pass


def _suffix(catalog: "Catalog", layer: Layer) -> str:
    """The suffix of the new tables; tables of an interrupted rebuild that cannot be continued are dropped."""
    begun = {name: _begun_suffixes(catalog, name) for name in layer.names("")}
    if layer.resumes:
        found = begun[layer.names("")[-1]]
        return found[-1] if found else new_suffix()
    for name, suffixes in begun.items():
        for suffix in suffixes:
            catalog.drop_table(name + suffix)
    return new_suffix()


def _begun_suffixes(catalog: "Catalog", table: str) -> list[str]:
    """Suffixes of the tables of earlier rebuilds that were interrupted, the newest last."""
    namespace, name = table.split(".")
    names = [found for _, found in catalog.list_tables(namespace)] if catalog.namespace_exists(namespace) else []
    return sorted(found.removeprefix(name) for found in names if found.startswith(name + REBUILDING))


def _is_replacing(catalog: "Catalog", names: Sequence[str]) -> bool:
    """Whether an earlier rebuild was interrupted while it replaced the tables, the last of which is still left."""
    last = names[-1]
    if not catalog.table_exists(last) or all(catalog.table_exists(name) for name in names):
        return False
    return any(name.startswith(MARKER) for name in catalog.load_table(last).properties)
