"""Format counts and errors for messages."""


def count_of(count: int, one: str, several: str = "") -> str:
    """Format a count like ``1 file`` or ``1,000 files``."""
    return f"1 {one}" if count == 1 else f"{count:,} {several or f'{one}s'}"


def are(count: int, one: str, several: str = "") -> str:
    """Format a count like ``1 file is`` or ``1,000 files are``."""
    return f"{count_of(count, one, several)} {'is' if count == 1 else 'are'}"


def first_line(error: object) -> str:
    """Return the first line of an error's message without a full stop; the name of its type if there is no message."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
