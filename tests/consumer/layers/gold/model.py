"""Gold in plain Python: the rows of a product, from the rows that silver has kept."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

Order = dict[str, Any]
Window = tuple[Any, ...]
"""Start, end, the keys and the measures."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Spec:
    """A product and its measures.

    Parameters
    ----------
    text
        Content of the product's file.
    keys, measures
        Names of the keys, and a function for each measure of the orders in a window.
    size, every
        Length and step of the windows.
    final
        Whether a window is published once.
    session
        Whether windows are sessions, whose gap is the size.
    """

    text: str
    keys: tuple[str, ...]
    measures: Mapping[str, Callable[[list[Order]], Any]]
    size: timedelta
    every: timedelta
    final: bool = False
    session: bool = False


def sessions(orders: Iterable[Order], spec: Spec) -> list[Window]:
    """Return the rows of a product of sessions, computed one order at a time."""
    by_keys: dict[tuple[Any, ...], list[Order]] = {}
    for order in orders:
        if order["ordered_at"] is not None:
            by_keys.setdefault(tuple(order[key] for key in spec.keys), []).append(order)
    rows = []
    for keys, mine in by_keys.items():
        found: list[list[Order]] = []
        for order in sorted(mine, key=lambda order: order["ordered_at"]):
            if not found or order["ordered_at"] - found[-1][-1]["ordered_at"] >= spec.size:
                found.append([])
            found[-1].append(order)
        for there in found:
            ends = (there[0]["ordered_at"], there[-1]["ordered_at"] + spec.size)
            rows.append((*ends, *keys, *(measure(there) for measure in spec.measures.values())))
    return by_key(rows)


def windows(orders: Iterable[Order], spec: Spec, horizon: datetime | None = None) -> list[Window]:
    """Return the rows of a product; if its windows are final, only windows that end at or before the horizon."""
    if spec.session:
        return sessions(orders, spec)
    size, every = spec.size // _MICROSECOND, spec.every // _MICROSECOND
    found: dict[tuple[Any, ...], list[Order]] = {}
    for order in orders:
        if order["ordered_at"] is None:
            continue
        at = (order["ordered_at"] - _EPOCH) // _MICROSECOND
        start = at - at % every
        while start > at - size:
            found.setdefault((start, *(order[key] for key in spec.keys)), []).append(order)
            start -= every
    rows = [
        (_time(start), _time(start + size), *keys, *(measure(there) for measure in spec.measures.values()))
        for (start, *keys), there in found.items()
    ]
    return by_key(row for row in rows if not spec.final or (horizon is not None and row[1] <= horizon))


def by_key(rows: Iterable[Window]) -> list[Window]:
    """Sort rows, null before everything else."""
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row])


def total(name: str) -> Callable[[list[Order]], Decimal | None]:
    """Return a measure: the sum of a field, without nulls."""

    def measure(orders: list[Order]) -> Decimal | None:
        values = [order[name] for order in orders if order[name] is not None]
        return Decimal(sum(values)) if values else None

    return measure


def best(name: str, of: Callable[..., Any]) -> Callable[[list[Order]], Any]:
    """Return a measure: the minimum or maximum of a field, without nulls."""
    return lambda orders: of((order[name] for order in orders if order[name] is not None), default=None)


def by(name: str, of: Callable[..., Any]) -> Callable[[list[Order]], Any]:
    """Return a measure: a field of the first or last order, and at equal times its least or greatest value."""

    def measure(orders: list[Order]) -> Any:
        at = of(order["ordered_at"] for order in orders)
        values = [order[name] for order in orders if order["ordered_at"] == at]
        return of((value for value in values if value is not None), default=None)

    return measure


def _time(micros: int) -> datetime:
    return _EPOCH + micros * _MICROSECOND
