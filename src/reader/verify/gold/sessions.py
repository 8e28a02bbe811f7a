"""Recompute the sessions of a product from silver, for a part of the keys at a time."""

from dataclasses import dataclass

from lakeproof.contracts import Contract
from lakeproof.gold.model import Product
from lakeproof.tables.names import MICRO_BATCH_ID
from reader.connect import Session
from reader.verify.gold.windows import (
    END,
    EXPECTED,
    START,
    Taken,
    key_columns,
    measures_of,
    selected_of,
    slice_count,
)
from reader.verify.silver.content import event_time, micros
from reader.views import identifier


@dataclass(frozen=True)
class SomeKeys:
    """Part `number` of `of` parts of the keys. Sessions may have any length, so they cannot be sliced by time."""

    number: int
    of: int

    def holds(self, keys: list[str]) -> str:
        """Return SQL that is true if keys, given as SQL, are in the part. Widening a key does not change its text."""
        texts = ", ".join(f"CAST({key} AS VARCHAR)" for key in keys)
        return f"hash([{texts}]) % {self.of} = {self.number}" if keys and self.of > 1 else "true"


class Sessions:
    """Recomputes the sessions of a product from the rows of silver in the gold table."""

    def __init__(self, session: Session, product: Product, contract: Contract, taken: Taken) -> None:
        self._session = session
        self._product = product
        self._taken = taken
        self._gap = micros(product.window.size)
        self._at = event_time(contract, "_silver")
        self._rows = (
            f"{taken.silver} AS _silver WHERE _silver.{MICRO_BATCH_ID} < {taken.end} AND {self._at} IS NOT NULL"
        )

    def slices(self) -> list[SomeKeys]:
        """Return parts that together cover all keys; a product without keys has one part."""
        count = slice_count(self._session.count(self._rows)) if self._product.keys else 1
        return [SomeKeys(number, count) for number in range(count)]

    def expect(self, part: SomeKeys) -> int:
        """Put the sessions of a part of the keys into :data:`EXPECTED`; return their number."""
        keys = key_columns(self._product)
        within = ["_silver." + ".".join(map(identifier, key.path)) for key in self._product.keys]
        by_keys = f"PARTITION BY {', '.join(keys)} " if keys else ""
        ordered = f"({by_keys}ORDER BY _at)"
        # Rows with the same time are peers in the window: the sum is the same for all, whichever comes first.
        self._session.fetch(
            f"CREATE OR REPLACE TABLE {EXPECTED} AS WITH "
            f"found AS (SELECT {', '.join([f'{self._at} AS _at', *selected_of(self._product)])} "
            f"FROM {self._rows} AND {part.holds(within)}), "
            f"marked AS (SELECT *, coalesce(_at - lag(_at) OVER {ordered} >= {self._gap}, true) AS _first FROM found), "
            f"numbered AS (SELECT *, sum(_first::INTEGER) OVER {ordered} AS _number FROM marked) "
            f"SELECT {', '.join([f'min(_at) AS {START}', f'max(_at) + {self._gap} AS {END}', *keys])}, "
            f"{', '.join(measures_of(self._product))} FROM numbered GROUP BY {', '.join([*keys, '_number'])}"
        )
        return self._session.count(EXPECTED)
