"""The ranges of offsets that a batch over the past of a topic reads, and those that it leaves out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakeproof.kafka.offsets import Offsets, Range, without

_ALL_OFFSETS = 1 << 63


@dataclass(frozen=True)
class KnownOfPast:
    """Wanted ranges of offsets: in the tables, still to be read by the stream, or before its beginning."""

    accounted: list[Range]
    pending: list[Range]
    left: list[Range]  # before the beginning of the stream, and not read


def known_of_past(wanted: Sequence[Range], begin: Offsets, place: Offsets) -> KnownOfPast:
    """Split ranges by the beginning of a stream, and by the position up to which its tables have everything."""
    streamed, pending = [], []
    for partition in {partition for partition, _, _ in wanted}:
        first = begin.next(partition)
        at = max(first, place.next(partition))
        streamed.append((partition, first, at))
        pending.append((partition, at, _ALL_OFFSETS))
    accounted = [*place.past, *streamed]
    left = without(wanted, [*accounted, *pending])
    return KnownOfPast(without(wanted, [*left, *pending]), without(wanted, [*left, *accounted]), left)


def at_most(count: int, ranges: Iterable[Range]) -> list[Range]:
    """Return the first offsets of ranges, at most `count`."""
    taken = []
    for partition, first, end in ranges:
        if count:
            taken.append((partition, first, min(end, first + count)))
            count -= taken[-1][2] - first
    return taken
