"""JSON as written: numbers whose conversion would lose digits that a contract may keep or refuse, and its depth."""

MAX_DEPTH = 500
"""Maximum nesting depth of brackets; Python's parser stops at some greater depth."""


class IntToken(str):
    """A number without decimal point and exponent."""

    __slots__ = ()


class FloatToken(str):
    """A number with a decimal point or an exponent."""

    __slots__ = ()
