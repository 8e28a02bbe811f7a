"""Read a plot of a device: readings, samples and anomalies."""

from functools import partial

from lakeproof.catalog import catalog_errors, quoted
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.gold.model import Kind
from lakeproof.gold.product_file import is_of_kind
from lakeproof.gold.samples import Samples
from lakeproof.gold.samples_file import load_all_samples, load_samples
from lakeproof.settings import Settings
from lakeproof.tables.names import samples_tables, silver_tables
from reader.catalogs import catalog_of, table_of
from reader.connect import Session, connect
from reader.plot.series import Line, Panel, Plot
from reader.views import identifier

_READINGS = 2_000
_FIRST, _LAST = "'0300-01-01T00:00:00Z'::TIMESTAMPTZ", "'9699-12-31T23:59:59Z'::TIMESTAMPTZ"


def read_device(settings: Settings, name: str, device: str) -> Plot:
    """Read the plot of a device: its newest readings, up to 2,000."""
    samples = _samples(settings, name)
    tables = samples_tables(samples.name, samples.anomalies)
    silver = silver_tables(samples.stream).kept
    with catalog_errors():
        catalog = catalog_of(settings)
        for table in (silver, tables.samples, tables.anomalies):
            if table_of(catalog, table) is None:
                raise LakeproofError(f"{table} does not exist yet.", f"Run `consumer run {samples.stream}`.")
    with connect(settings) as session:
        return device_plot(session, samples, device)


def device_plot(session: Session, samples: Samples, device: str) -> Plot:
    """Return the plot of a device; the tables must exist."""
    tables = samples_tables(samples.name, samples.anomalies)
    silver = silver_tables(samples.stream).kept
    readings = _line(session, samples, device, "readings", silver, limit=_READINGS)
    if not readings.times:
        query = f"select distinct {samples.device.name} from {silver}"
        raise UsageError(f"{silver} has no readings of the device {device!r}.", f'Run `reader sql "{query}"`.')
    since = f"make_timestamptz({int(readings.times[0].timestamp() * 1_000_000)})"
    marked = [
        _line(session, samples, device, label, table, since=since, is_points=True)
        for label, table in (("samples", tables.samples), ("anomalies", tables.anomalies))
    ]
    lines = (readings, *(line for line in marked if line.times))
    title = f"{samples.stream}: {device}"
    return Plot(
        title, readings.times[0], readings.times[-1], (Panel(samples.value.name, lines),), samples.event_time.name
    )


def _samples(settings: Settings, name: str) -> Samples:
    contract_of = partial(load_contract, settings.contracts)
    if is_of_kind(settings.gold, name, Kind.SAMPLES):
        return load_samples(settings.gold, name, contract_of)
    found = load_all_samples(settings.gold, [name], contract_of)
    if not found:
        raise UsageError(
            f"No product of samples in {settings.gold} has the name {name!r} or reads a stream of this name.",
            "--device is for such products, see docs/sensors.md.",
        )
    return found[0]


def _line(
    session: Session,
    samples: Samples,
    device: str,
    label: str,
    table: str,
    *,
    since: str = _FIRST,
    limit: int = 1_000_000,
    is_points: bool = False,
) -> Line:
    """Return the newest distinct readings of a table as a line."""
    time, value = identifier(samples.event_time.name), identifier(samples.value.name)
    rows = session.fetch(
        f"SELECT DISTINCT {time}, {value} FROM {table} WHERE {identifier(samples.device.name)} = {quoted(device)} "
        f"AND {time} BETWEEN {since} AND {_LAST} ORDER BY 1 DESC, 2 DESC LIMIT {limit}"
    )[::-1]
    return Line(label, tuple(time for time, _ in rows), tuple(value for _, value in rows), is_points)
