"""Which tests run by default, which with ``ALL=1``, and which on demand.

Tests that are marked ``all`` run with ``ALL=1``, and where they are named on the command line; property tests run more
examples then. Tests that are marked ``long`` run with ``-m long``: other combinations of a grid, and what takes long.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest

ALL = os.environ.get("ALL", "") not in ("", "0")
"""Whether all tests run."""
_SHARE = 5
"""Share of its examples that a property test runs by default."""


def examples(count: int) -> int:
    """Return the number of examples that a property test with `count` examples runs."""
    return count if ALL else max(count // _SHARE, 5)


def only_with_all(*values: object, **named: Any) -> Any:
    """Return a parameter set, like ``pytest.param``, that runs only with ``ALL=1``."""
    return pytest.param(*values, marks=[pytest.mark.all, *named.pop("marks", [])], **named)


def first_by_default(values: Iterable[Any], count: int = 1) -> list[Any]:
    """Return the values for ``parametrize``: the first `count` run by default, the others only with ``ALL=1``.

    A tuple has a value for each parameter.
    """
    tuples = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*each) if number < count else only_with_all(*each) for number, each in enumerate(tuples)]


def grid(**axes: Sequence[Any] | Mapping[str, Any]) -> pytest.MarkDecorator:
    """Parametrize a test with combinations of the axes, chosen to cover each pair of values of two axes.

    One runs by default, those that cover each value of each axis run with ``ALL=1``, and the others on demand. An axis
    is a sequence of values, or a mapping of names to values. Grids of more axes run whole in ``make chaos``.
    """
    named = [
        list(axis.items()) if isinstance(axis, Mapping) else [(str(value), value) for value in axis]
        for axis in axes.values()
    ]
    names = [[name for name, _ in axis] for axis in named]
    with_all = covering(names, 1)
    chosen = covering(names, min(2, len(names))) | with_all
    by_default = next(case for case in product(*names) if case in with_all)
    cases = []
    for case in product(*named):
        name = tuple(name for name, _ in case)
        if name in chosen:
            marks = [] if name == by_default else [pytest.mark.all if name in with_all else pytest.mark.long]
            cases.append(pytest.param(*(value for _, value in case), id="-".join(name), marks=marks))
    return pytest.mark.parametrize(list(axes), cases)


def covering(axes: Sequence[Sequence[str]], strength: int) -> set[tuple[str, ...]]:
    """Return combinations of all axes that cover each combination of `strength` axes: few, and always the same ones."""
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
