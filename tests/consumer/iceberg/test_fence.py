"""The fence holds in every interleaving, and each of its guards is needed."""

import pytest
from tests.consumer.iceberg.fence import Guard, explore

# Two writers of the same micro-batch, and a third one that is suspended before the next micro-batch.
WRITERS = (0, 0, 1)


def test_nothing_is_lost_doubled_or_destroyed() -> None:
    states, wrong = explore(Guard.ALL, WRITERS)
    assert states > 2_000
    assert not wrong


@pytest.mark.parametrize(
    ("guard", "bug"),
    [
        (Guard.SWAP, "doubled"),
        (Guard.MARKER_OF_THE_BASE, "doubled"),
        (Guard.FILES_STAY, "destroyed"),
        (Guard.LOOK_AFTER_ERROR, "failed though it landed"),
    ],
)
def test_without_a_guard_its_bug_is_back(guard: Guard, bug: str) -> None:
    _, wrong = explore(Guard.ALL & ~guard, WRITERS)
    assert bug in wrong
