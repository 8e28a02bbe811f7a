"""Words for messages: counts in sentences, and what an error says."""


def count_of(count: int, one: str, several: str = "") -> str:
    """``1 file``, ``1,000 files``."""
    return f"1 {one}" if count == 1 else f"{count:,} {several or f'{one}s'}"


def are(count: int, one: str, several: str = "") -> str:
    """``1 file is``, ``1,000 files are``."""
    return f"{count_of(count, one, several)} {'is' if count == 1 else 'are'}"


def first_line(error: object) -> str:
    """The first line of what an error says, without a full stop; the name of its type if it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
