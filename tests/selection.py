"""Which tests run by default, and which only with ``ALL=1``.

Tests that are marked ``all`` run with ``ALL=1``, and where they are named on the command line. By default a grid of
crashes runs the combinations that `grid` chooses, and property tests fewer examples.
"""

import os
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest

ALL = os.environ.get("ALL", "") not in ("", "0")
"""Whether all tests run."""
_SHARE = 5
"""By default a property test runs this part of its examples."""


def examples(count: int) -> int:
    """How many examples a property test with `count` of them runs."""
    return count if ALL else max(count // _SHARE, 5)


def only_with_all(*values: object, **named: Any) -> Any:
    """A parameter set, like ``pytest.param``, that runs only with ``ALL=1``."""
    return pytest.param(*values, marks=[pytest.mark.all, *named.pop("marks", [])], **named)


def grid(*, strength: int = 1, **axes: Sequence[Any] | Mapping[str, Any]) -> pytest.MarkDecorator:
    """Parametrize a test with every combination of the axes; by default, with a covering choice of them.

    An axis is a sequence of values, or a mapping of names to values. With a `strength` of 1 each value of each axis is
    chosen, with 2 each pair of values of two axes, and so on.
    """
    named = [
        list(axis.items()) if isinstance(axis, Mapping) else [(str(value), value) for value in axis]
        for axis in axes.values()
    ]
    chosen = covering([[name for name, _ in axis] for axis in named], strength)
    cases = []
    for case in product(*named):
        names = tuple(name for name, _ in case)
        marks = [] if names in chosen else [pytest.mark.all]
        cases.append(pytest.param(*(value for _, value in case), id="-".join(names), marks=marks))
    return pytest.mark.parametrize(list(axes), cases)


def covering(axes: Sequence[Sequence[str]], strength: int) -> set[tuple[str, ...]]:
    """Combinations of all axes that have each combination of `strength` of them: few, and always the same ones."""
    left = {
        frozenset(zip(numbers, values, strict=True))
        for numbers in combinations(range(len(axes)), strength)
        for values in product(*(axes[number] for number in numbers))
    }
    cases, chosen = list(product(*axes)), set()
    while left:
        # Greedy: not always the smallest choice, but an optimal one would save little here.
        best = max(cases, key=lambda case: sum(part <= set(enumerate(case)) for part in left))
        chosen.add(best)
        left = {part for part in left if not part <= set(enumerate(best))}
    return chosen
