"""Counts in sentences."""


def count_of(count: int, one: str, several: str) -> str:
    """``1 file``, ``1,000 files``."""
    return f"1 {one}" if count == 1 else f"{count:,} {several}"


def are(count: int, one: str, several: str) -> str:
    """``1 file is``, ``1,000 files are``."""
    return f"{count_of(count, one, several)} {'is' if count == 1 else 'are'}"
