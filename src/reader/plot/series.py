"""Read a plot of a data product: one panel per measure, one line per combination of keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from lakeproof.catalog import catalog_errors, quoted
from lakeproof.contracts import DecimalType, PrimitiveType, load_contract
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.gold.model import WINDOW_START, Aggregate, Measure, Product
from lakeproof.gold.product_file import load_product
from lakeproof.settings import Settings
from lakeproof.standard_streams import printable
from lakeproof.tables.names import gold_table
from reader.catalogs import catalog_of, table_of
from reader.connect import Session, connect
from reader.views import identifier

_NUMBERS = (PrimitiveType.INT, PrimitiveType.LONG, PrimitiveType.DOUBLE)
_TOTALS = (Aggregate.COUNT, Aggregate.COUNT_DISTINCT, Aggregate.SUM)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_KEY = "all"
_SHOWN_TEXT = 40
# Years that can be drawn, with a margin.
_DRAWABLE = f"{WINDOW_START} BETWEEN '0300-01-01T00:00:00Z'::TIMESTAMPTZ AND '9699-12-31T23:59:59Z'::TIMESTAMPTZ"


class NothingToDrawError(LakeproofError):
    """A product has no rows to draw, or only null."""


@dataclass(frozen=True)
class Line:
    """The values of a measure for one combination of keys."""

    label: str
    times: tuple[datetime, ...]
    values: tuple[float, ...]
    is_points: bool = False  # points, not joined by a line


@dataclass(frozen=True)
class Panel:
    """A measure, and its lines."""

    measure: str
    lines: tuple[Line, ...]  # one per combination of keys
    # Counts and sums are compared by height, so the axis begins at zero unless a value is negative.
    from_zero: bool = False


@dataclass(frozen=True)
class Plot:
    """A plot of a product."""

    title: str
    first: datetime
    last: datetime
    panels: tuple[Panel, ...]
    time: str = "start of the window"

    @property
    def limits(self) -> tuple[datetime, datetime]:
        """Limits of the time axis, with a margin."""
        margin = max((self.last - self.first) / 50, timedelta(seconds=1))
        return self.first - margin, self.last + margin


def read_plot(settings: Settings, name: str, measures: Sequence[str], keys: Sequence[str], top: int) -> Plot:
    """Read the plot of a product; `keys` are conditions like ``user_id=u1``."""
    product = load_product(settings.gold, name, partial(load_contract, settings.contracts))
    chosen = _measures(product, measures)
    condition = _condition(product, keys)
    with catalog_errors():
        if table_of(catalog_of(settings), gold_table(name)) is None:
            raise LakeproofError(f"{gold_table(name)} does not exist yet.", f"Run `consumer run {product.stream}`.")
    with connect(settings) as session:
        return _read(session, product, chosen, condition, top)


def newest_windows(session: Session, product: Product, windows: int, top: int) -> Plot | None:
    """Return a plot of a product's newest windows, for all numeric measures; None if nothing can be drawn."""
    numbers = [measure for measure in product.measures if _is_number(measure)]
    table = gold_table(product.name)
    ((newest,),) = session.fetch(f"SELECT epoch_us(max({WINDOW_START})) FROM {table} WHERE {_DRAWABLE}")
    if newest is None or not numbers:
        return None
    first = newest - windows * (product.window.every // timedelta(microseconds=1))
    return _read(session, product, numbers, f"{_DRAWABLE} AND {WINDOW_START} > make_timestamptz({first})", top)


def _measures(product: Product, names: Sequence[str]) -> list[Measure]:
    known = {measure.name: measure for measure in product.measures}
    numbers = [measure for measure in product.measures if _is_number(measure)]
    hint = f"Measures that can be drawn: {', '.join(measure.name for measure in numbers) or 'none'}."
    for name in names:
        if name not in known:
            raise UsageError(f"{product.name} has no measure {name!r}.", hint)
        if not _is_number(known[name]):
            raise UsageError(f"The measure {name} is not a number.", hint)
    if not numbers:
        raise UsageError(f"{product.name} has no measure that is a number.", "Add one to the product, like count(*).")
    return [known[name] for name in dict.fromkeys(names)] or numbers


def _is_number(measure: Measure) -> bool:
    return measure.type in _NUMBERS or isinstance(measure.type, DecimalType)


def _condition(product: Product, keys: Sequence[str]) -> str:
    """Return SQL for conditions on keys; for each key, one condition must be met."""
    values: dict[str, list[str]] = {}
    for text in keys:
        name, equals, value = text.partition("=")
        if not equals or name not in {key.name for key in product.keys}:
            available = ", ".join(f"{key.name}=VALUE" for key in product.keys)
            raise UsageError(
                f"{text!r} is not a key of {product.name}.",
                f"Use one of {available}." if available else "The product has no keys.",
            )
        values.setdefault(name, []).append(quoted(value))
    each = [f"{identifier(name)}::VARCHAR IN ({', '.join(found)})" for name, found in values.items()]
    return " AND ".join([_DRAWABLE, *each])


def _read(session: Session, product: Product, measures: list[Measure], condition: str, top: int) -> Plot:
    table = gold_table(product.name)
    keys = [identifier(key.name) for key in product.keys]
    label = " || ', ' || ".join(f"coalesce({key}::VARCHAR, 'null')" for key in keys) or quoted(_NO_KEY)
    weight = f"coalesce(sum({identifier(measures[0].name)}::DOUBLE), 0)"
    grouped = ", ".join(keys) or "()"
    count, best = session.fetch_first(
        f"SELECT [{', '.join(f'{key}::VARCHAR' for key in keys)}]::VARCHAR[], {label} AS label, {weight} AS weight "
        f"FROM {table} WHERE {condition} GROUP BY {grouped} HAVING count(*) > 0",
        "weight DESC, label",
        top,
    )
    if not best:
        raise NothingToDrawError(
            f"{table} has no rows to draw.", "Check the values of --key, or `reader verify` for whether it is filled."
        )
    selected = ", ".join(f"{identifier(measure.name)}::DOUBLE" for measure in measures)
    lines: list[list[Line]] = [[] for _ in measures]
    for values, text, _ in best:
        same = " AND ".join(
            f"{key}::VARCHAR IS NOT DISTINCT FROM {'NULL' if value is None else quoted(value)}"
            for key, value in zip(keys, values, strict=True)
        )
        rows = session.fetch(
            f"SELECT epoch_us({WINDOW_START}), {selected} FROM {table} "
            f"WHERE {condition} AND {same or 'true'} ORDER BY {WINDOW_START}"
        )
        times = [_EPOCH + timedelta(microseconds=row[0]) for row in rows]
        for index, found in enumerate(lines):
            found.append(_line(_shown(text), times, [row[index + 1] for row in rows]))
    drawn = [time for found in lines for line in found for time in line.times]
    if not drawn:
        raise NothingToDrawError(f"{table} has only null to draw.", "Use another --measure or --key.")
    title = f"{table}, windows of {product.window}"
    if len(best) < count:
        title += f": {len(best):,} of {count:,} keys, with the greatest {measures[0].name}"
    panels = (
        Panel(measure.name, tuple(found), measure.aggregate in _TOTALS)
        for measure, found in zip(measures, lines, strict=True)
    )
    return Plot(title, min(drawn), max(drawn), tuple(panels))


def _shown(text: str) -> str:
    """Return a printable text, shortened if it is long."""
    visible = printable(text).replace("\n", "\\n")
    return visible if len(visible) <= _SHOWN_TEXT else f"{visible[:_SHOWN_TEXT]}…"


def _line(label: str, times: list[datetime], values: list[float | None]) -> Line:
    """Return a line without windows that have no finite value."""
    points = [
        (time, value)
        for time, value in zip(times, values, strict=True)
        if value is not None and abs(value) < float("inf")
    ]
    return Line(label, tuple(time for time, _ in points), tuple(value for _, value in points))
