"""Data products on the page: numbers, a plot, and the newest anomalies."""

from collections.abc import Callable, Container
from contextlib import AbstractContextManager, suppress
from dataclasses import replace

from lakeproof.errors import UsageError
from lakeproof.gold.model import Product
from lakeproof.gold.samples import DETECTED_AT, Samples
from lakeproof.tables.names import gold_table, samples_tables
from reader.connect import Session
from reader.page.model import Number, ProductFacts
from reader.plot.device import device_plot
from reader.plot.series import NothingToDrawError, newest_windows
from reader.views import identifier

_WINDOWS = 96
_LINES = 3
_ANOMALIES = 5


Reading = Callable[[str], AbstractContextManager[None]]
"""Makes a context for reading a table by name: a table that cannot be read is noted, and the context ends."""


def windows_facts(session: Session, product: Product, tables: Container[str], reading: Reading) -> ProductFacts:
    """Read the number of windows, and the newest windows for a plot."""
    name = gold_table(product.name)
    facts = ProductFacts(product.name, name, product.description, None)
    if name not in tables:
        return facts
    with reading(name):
        facts = replace(facts, windows=_counted(session, product.name, "windows", name))
        with suppress(NothingToDrawError):
            facts = replace(facts, plot=newest_windows(session, product, _WINDOWS, _LINES))
    return facts


def samples_facts(
    session: Session, samples: Samples, tables: Container[str], reading: Reading, *, has_silver: bool
) -> ProductFacts:
    """Read the numbers of samples and anomalies, the newest anomalies, and with silver the plot of a device."""
    names = samples_tables(samples.name, samples.anomalies)
    facts = ProductFacts(samples.name, names.samples, samples.description, None)
    if names.samples not in tables or names.anomalies not in tables:
        return facts
    device, value = identifier(samples.device.name), identifier(samples.value.name)
    with reading(names.samples):
        counts = [
            _counted(session, samples.name, "samples", names.samples),
            _counted(session, samples.anomalies, "anomalies", names.anomalies),
        ]
        found = session.fetch(
            f"SELECT {device}::VARCHAR, detector::VARCHAR, {DETECTED_AT}::VARCHAR, {value}::VARCHAR "
            f"FROM {names.anomalies} ORDER BY {DETECTED_AT} DESC LIMIT {_ANOMALIES}"
        )
        newest = [dict(zip(("device", "detector", "detected", "value"), row, strict=True)) for row in found]
        facts = replace(facts, windows=counts[0], numbers=counts[1:], anomalies=newest)
        if has_silver:
            source = names.anomalies if newest else names.samples
            devices = session.fetch(f"SELECT {device}::VARCHAR FROM {source} WHERE {device} IS NOT NULL LIMIT 1")
            with suppress(UsageError):  # silver may be behind
                facts = replace(facts, plot=device_plot(session, samples, devices[0][0]) if devices else None)
    return facts


def _counted(session: Session, key: str, what: str, table: str) -> Number:
    return Number(f"gold-{key}", f"{what} of {key}", session.count(table), f"SELECT * FROM {table}")
