"""Sources of files that were not in the ledger at each look of a proof, and those whose micro-batch is under way."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from reader.verify.tables.accounts import Account, Booking
from reader.verify.tables.files import TablesOfFiles


class NoReplays:
    def load(self) -> None:
        return None

    def recovered(self) -> dict[str, tuple[int, bool]]:
        return {}


class Looks(TablesOfFiles):
    """Looks at a stream that commits: for each, the sources in the ledger and those with rows."""

    def __init__(self, *looks: tuple[set[str], set[str]]) -> None:
        super().__init__(cast(Any, None), cast(Any, None), cast(Any, NoReplays()))
        self._looks: Iterator[tuple[set[str], set[str]]] = iter(looks)

    def _bookings(self, *_: Any) -> dict[str, Booking]:
        booked, self._rows = next(self._looks)
        return dict.fromkeys(booked, cast(Any, None))

    def _load_accounts(self) -> None:
        self.accounts = {source: Account(rows=1, ingested_at=1.0) for source in self._rows}


def left(*looks: tuple[set[str], set[str]]) -> Mapping[str, Account]:
    tables = Looks(*looks)
    for _ in looks:
        tables.load()
    tables.leave_out_new()
    return tables.accounts


def test_only_what_stays_outside_the_ledger_is_compared() -> None:
    assert left(({"a"}, {"a", "lost"}), ({"a"}, {"a", "lost", "begun"})).keys() == {"a", "lost"}


def test_what_is_outside_at_the_only_look_is_compared() -> None:
    assert left((set(), {"lost"})).keys() == {"lost"}


def test_each_look_may_find_another_micro_batch_under_way() -> None:
    assert left((set(), {"a"}), ({"a"}, {"a", "b"}), ({"a", "b"}, {"a", "b", "c"})).keys() == {"a", "b"}
