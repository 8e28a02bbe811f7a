"""Folders, addresses and databases as people write them: checked before anything is made there."""

import os
import re
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from lakeproof.errors import UsageError

SCHEMES = ("file", "s3")
"""Of the addresses that a part of the lake may have."""

_DATABASES = ("sqlite", "postgresql", "postgresql+psycopg")
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_ALMOST_ADDRESS = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:/(?!/)|(?:s3[an]?|file):(?!//))", re.IGNORECASE)
_GIVE_PLACE = "Use a folder, a file:// or an s3:// address."
_LONGEST_NAME = 255
_LONGEST_PATH = 3_500
"""Bytes. Linux takes 4,096, of which the names below the lake need some."""


def folder(text: str) -> Path:
    """Path of a folder, with ``~`` as the home of its user."""
    if _ADDRESS.match(text) or _ALMOST_ADDRESS.match(text):
        raise UsageError(f"expected a folder, got the address {text!r}.", "Use a folder on this machine.")
    try:
        path = Path(text).expanduser()
    except RuntimeError:  # of a user that there is not
        raise UsageError(f"{text!r} starts with the home folder of an unknown user.", "Use an absolute path.") from None
    _check(path)
    return path


def place(text: str) -> str:
    """Take a folder or an address; of a folder, ``~`` is the home of its user."""
    address = _ADDRESS.match(text)
    if not address:
        if _ALMOST_ADDRESS.match(text):
            raise UsageError(
                f"{text!r} looks like an address, but has no ://.",
                f"Use s3://BUCKET/PREFIX or file:///FOLDER. For a folder with this name, use ./{text}",
            )
        return str(folder(text))
    scheme, rest = address.groups()
    if scheme not in SCHEMES:
        raise UsageError(f"{text} is not a file:// or s3:// address.", _GIVE_PLACE)
    if "#" in rest or "?" in rest or not rest.isprintable():
        raise UsageError(
            f"{text!r} contains characters that are not allowed in an address.", "Use a folder, or another name."
        )
    if scheme == "file" and not rest.startswith("/"):
        raise UsageError(
            f"{text} refers to another machine, {rest.partition('/')[0]!r}.",
            f"For a local folder, use three slashes: file:///{rest}",
        )
    if scheme == "s3" and not rest.partition("/")[0]:
        raise UsageError(f"{text} has no bucket name.", "Use s3://BUCKET/PREFIX.")
    if scheme == "file":
        _check(Path(rest))
    return text


def as_uri(text: str) -> str:
    """Make a path a ``file://`` URI, percent-encoded; a URI stays one, without a slash at its end."""
    return text.rstrip("/") if "://" in text else Path(text).absolute().as_uri()


def as_plain_uri(text: str) -> str:
    """Make a path an address as Iceberg and Hadoop take it: they decode no percent signs of what follows file://."""
    return text.rstrip("/") if "://" in text else f"file://{Path(text).absolute()}"


def encoded(plain_uri: str) -> str:
    """Make an address as Iceberg has it one as our storage takes it: percent-encoded, where it is a file's."""
    scheme, separator, path = plain_uri.partition("://")
    return f"{scheme}{separator}{quote(path)}" if scheme == "file" else plain_uri


def database(uri: str) -> str:
    """Take the URI of a database."""
    hint = (
        "Use sqlite:////FOLDER/FILE.db or postgresql://USER:PASSWORD@HOST/DATABASE. Percent-encode special characters "
        "in the password: @ is %40, : is %3A, / is %2F, % is %25."
    )
    try:
        parts = urlsplit(uri, allow_fragments=False)
        is_split = parts.port != 0 and parts.netloc.count("@") <= 1 and "#" not in parts.netloc
    except ValueError:  # the port is not a number: mostly a part of the password
        is_split = False
    if not is_split and not uri.startswith("sqlite:"):
        raise UsageError(f"{without_password(uri)!r} is not a valid database address.", hint)
    if parts.scheme not in _DATABASES:
        raise UsageError(f"{without_password(uri)!r} is not a sqlite:/// or postgresql:// address.", hint)
    if parts.scheme == "sqlite":
        name = parts.path.removeprefix("/")
        if parts.netloc or name in ("", ":memory:"):
            raise UsageError(f"{uri!r} has no file name.", hint)
        if parts.query:
            raise UsageError(
                f"{uri!r} has options after a ?, which are not supported.",
                "Remove them. If ? is part of the name, write %3F.",
            )
        if name.startswith("~"):
            raise UsageError(f"{uri!r} starts with ~, which is not expanded here.", "Use an absolute path.")
    elif not parts.hostname or not parts.path.strip("/"):
        raise UsageError(f"{without_password(uri)!r} has no host or no database name.", hint)
    return uri


def sqlite_uri(path: Path) -> str:
    """URI of a SQLite database, as SQLAlchemy reads it: it decodes percent signs, and takes options behind a ``?``."""
    return f"sqlite:///{quote(str(path.absolute()), safe='/ ')}"


def sqlite_path(uri: str) -> Path | None:
    """Path of the SQLite database that `uri` names; None for any other database."""
    # Without SQLAlchemy, which decodes it the same way: importing it takes longer than a query of the reader runs.
    return Path(unquote(uri.removeprefix("sqlite:///"))).absolute() if uri.startswith("sqlite:") else None


def without_password(uri: str) -> str:
    """`uri` without its password, also where special characters of it were not percent-encoded."""
    without = re.sub(r"(://[^/:@]*):.*@", r"\1:***@", uri)
    return re.sub(r"(?i)([?&]\w*password=)[^&]*", r"\1***", without)


def _check(path: Path) -> None:
    text = str(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{text!r} is not valid UTF-8.", "Use another folder.") from None
    if not text.isprintable():
        raise UsageError(f"{text!r} contains a control character.", "Use another folder.")
    if "\\" in text:  # DuckDB takes it for a mark of escape in a pattern, and finds no file
        raise UsageError(f"{text!r} contains a backslash.", "Use another folder, and / as the separator.")
    longest = max((len(os.fsencode(name)) for name in path.parts), default=0)
    if longest > _LONGEST_NAME:
        raise UsageError(
            f"a name in the path has {longest} bytes; the maximum is {_LONGEST_NAME}.", "Use a shorter name."
        )
    if len(os.fsencode(path.absolute())) > _LONGEST_PATH:
        raise UsageError(f"the path has more than {_LONGEST_PATH:,} bytes.", "Use a shorter path.")
