"""JSON numbers as written: converting them would lose digits that a contract may keep or refuse."""


class IntToken(str):
    """A number without decimal point and exponent."""

    __slots__ = ()


class FloatToken(str):
    """A number with a decimal point or an exponent."""

    __slots__ = ()
