"""Crashes between the appends of a micro-batch."""

from collections.abc import Callable
from typing import Any

import pytest

from consumer.layers import base
from lakeproof.errors import LakeproofError


def crash_before(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that lets the next micro-batch crash before its append of that number, and later ones not."""
    real = base.append_once

    def arm(count: int) -> None:
        left = count

        def append_or_crash(*arguments: Any) -> bool:
            nonlocal left
            if left == 0:
                monkeypatch.setattr(base, "append_once", real)
                raise LakeproofError("crashed, as asked")
            left -= 1
            done: bool = real(*arguments)
            return done

        monkeypatch.setattr(base, "append_once", append_or_crash)

    return arm
