"""Layout of the flow diagram: the places of boxes and bands, which the template draws."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reader.page.model import Number, StreamPage

WIDTH, HEIGHT = 960, 240
_TOP = 8
_BOX = 14  # width of a box
_SLOT = 44  # minimum distance between labels
_COLUMNS = (0, 240, 480, 720)
_KINDS = {
    "open": "bad",
    "closed": "closed",
    "erased": "twice",
    "duplicates": "twice",
    "conflicts": "bad",
    "late": "late",
}


@dataclass(frozen=True)
class Box:
    """A box: its number, place, height, and kind, which is its CSS class."""

    number: Number
    x: float
    y: float
    height: float
    kind: str

    @property
    def label_x(self) -> float:
        """Start of the label."""
        return self.x + _BOX + 8


@dataclass(frozen=True)
class Band:
    """A band between two boxes, as an SVG path."""

    path: str
    kind: str


@dataclass(frozen=True)
class Flow:
    """The flow diagram."""

    boxes: Sequence[Box]
    bands: Sequence[Band]
    height: int


def flow(page: StreamPage) -> Flow:
    """Lay out the flow of a stream: heights are proportional to units, and every box that is not zero is visible."""
    numbers = page.numbers
    whole = max(numbers["landed"].value, page.ledger.bronze + page.ledger.letters, 1)
    first = [
        ["landed"],
        ["bronze", "open", "closed", "erased"],
        ["kept", "duplicates", "conflicts", "late", "undecided"],
    ]
    columns = [[numbers[key] for key in keys if key in numbers and _is_shown(numbers[key])] for keys in first]
    scale = (HEIGHT - 2 * _TOP) / whole
    boxes: dict[str, Box] = {}
    lowest = 0.0
    for x, column in zip(_COLUMNS, columns, strict=False):
        y = float(_TOP)
        for number in column:
            height = max(number.value * scale, 2.0 if number.value else 0.0)
            boxes[number.key] = Box(number, x, y, height, _KINDS.get(number.key, "good"))
            y += max(height + 12, _SLOT)
        lowest = max(lowest, y)
    y = float(_TOP)
    for product in page.products:
        for of_gold in (product.windows, *product.numbers):
            if of_gold:  # windows are not units: all these boxes have the same height
                boxes[of_gold.key] = Box(of_gold, _COLUMNS[3], y, 24, "gold")
                y += _SLOT
    return Flow(list(boxes.values()), list(_bands(boxes, scale)), round(max(lowest, y, 120)))


def _is_shown(number: Number) -> bool:
    return number.value > 0 or number.key in ("landed", "bronze", "open", "kept", "duplicates")


def _bands(boxes: dict[str, Box], scale: float) -> Iterator[Band]:
    for source, targets in (
        ("landed", ("bronze", "open", "closed", "erased")),
        ("bronze", ("kept", "duplicates", "conflicts", "late", "undecided")),
    ):
        y = boxes[source].y
        for key in targets:
            target = boxes.get(key)
            if target and target.number.value:
                height = min(target.height, max(target.number.value * scale, 1.5))
                yield _band(boxes[source], target, y, height)
                y += height
    for key, target in boxes.items():
        if key.startswith("gold-") and "kept" in boxes and boxes["kept"].number.value:
            yield Band(_path(boxes["kept"].x + _BOX, boxes["kept"].y, target.x, target.y, 1.5), "gold")


def _band(source: Box, target: Box, y: float, height: float) -> Band:
    return Band(_path(source.x + _BOX, y, target.x, target.y, height), target.kind)


def _path(x: float, y: float, to_x: float, to_y: float, height: float) -> str:
    middle = (x + to_x) / 2
    return (
        f"M{x:.1f},{y:.1f}C{middle:.1f},{y:.1f} {middle:.1f},{to_y:.1f} {to_x:.1f},{to_y:.1f}V{to_y + height:.1f}"
        f"C{middle:.1f},{to_y + height:.1f} {middle:.1f},{y + height:.1f} {x:.1f},{y + height:.1f}Z"
    )
