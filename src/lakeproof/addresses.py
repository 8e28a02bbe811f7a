"""Check folders, addresses and databases in settings."""

import os
import re
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from lakeproof.errors import UsageError

SCHEMES = ("file", "s3")  # schemes of addresses in a lake
BUSY_SECONDS = 60  # SQLite: commits that gave up earlier on a locked catalog left orphan files

_DATABASES = ("sqlite", "postgresql", "postgresql+psycopg")
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_ALMOST_ADDRESS = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:/(?!/)|(?:s3[an]?|file):(?!//))", re.IGNORECASE)
_OF_POSTGRES = {
    # libpq waits for a server that has vanished without a reset: for 15 minutes, or 2 hours between two statements.
    "connect_timeout": 10,  # seconds
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,  # milliseconds
}
_WEB = re.compile(r"https?://[^/\s?#@]+(/[^\s?#]*)?")
_GIVE_ADDRESS = "Use a folder, a file:// or an s3:// address."
_LONGEST_NAME = 255
_LONGEST_PATH = 3_500  # bytes; Linux allows 4,096, of which names below the lake need some


def folder(text: str) -> Path:
    """Return the path of a folder, with ``~`` expanded."""
    if _ADDRESS.match(text) or _ALMOST_ADDRESS.match(text):
        raise UsageError(f"expected a folder, got the address {text!r}.", "Use a folder on this machine.")
    try:
        path = Path(text).expanduser()
    except RuntimeError:  # unknown user
        raise UsageError(f"{text!r} starts with the home folder of an unknown user.", "Use an absolute path.") from None
    _check(path)
    return path


def folder_or_address(text: str) -> str:
    """Check a folder or an address; expand ``~`` in a folder."""
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
        raise UsageError(f"{text} is not a file:// or s3:// address.", _GIVE_ADDRESS)
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


def with_merged_slashes(uri: str) -> str:
    """Return the URI of a landing zone as all programs use it: keys of S3 with an empty part are other keys."""
    if not uri.startswith("s3://"):
        return uri
    return "s3://" + "/".join(part for part in uri.removeprefix("s3://").split("/") if part)


def web_address(text: str) -> str:
    """Check the address of an HTTP server."""
    if not _WEB.fullmatch(text) or not has_host(text):
        raise UsageError(f"{text!r} is not the address of a server.", "Write http://HOST:PORT, with a path if needed.")
    return text


def has_host(url: str) -> bool:
    """Return whether the host of a URL can be looked up, and the URL requested: Python raises no OSError for others."""
    try:
        parts = urlsplit(url)
        return url.isascii() and bool(parts.hostname and is_host(parts.hostname)) and parts.port != 0
    except ValueError:
        return False


def is_host(name: str) -> bool:
    """Return whether a host can be looked up."""
    try:
        name.encode("idna")
    except UnicodeError:  # such as two dots, or a part of more than 63 characters
        return False
    return True


def as_uri(text: str) -> str:
    """Convert a path to a percent-encoded ``file://`` URI; strip trailing slashes of URIs."""
    return text.rstrip("/") if "://" in text else Path(text).absolute().as_uri()


def as_plain_uri(text: str) -> str:
    """Convert a path to an address for Iceberg and Hadoop, which do not decode percent signs."""
    return text.rstrip("/") if "://" in text else f"file://{Path(text).absolute()}"


def encoded(plain_uri: str) -> str:
    """Percent-encode a ``file://`` address of Iceberg for our storage."""
    scheme, separator, path = plain_uri.partition("://")
    return f"{scheme}{separator}{quote(path)}" if scheme == "file" else plain_uri


def database(uri: str) -> str:
    """Check the URI of a database."""
    hint = (
        "Use sqlite:////FOLDER/FILE.db or postgresql://USER:PASSWORD@HOST/DATABASE. Percent-encode special characters "
        "in the password: @ is %40, : is %3A, / is %2F, % is %25."
    )
    try:
        parts = urlsplit(uri, allow_fragments=False)
        is_split = parts.port != 0 and parts.netloc.count("@") <= 1 and "#" not in parts.netloc
    except ValueError:  # invalid port: usually a part of the password
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
    """Return SQLAlchemy's URI of a SQLite database, percent-encoded since ``?`` starts options."""
    return f"sqlite:///{quote(str(path.absolute()), safe='/ ')}"


def sqlite_path(uri: str) -> Path | None:
    """Return the path of a SQLite database; None for other databases."""
    if not uri.startswith("sqlite:"):
        return None
    # Decodes like SQLAlchemy, whose import takes longer than a query of the reader.
    return Path(unquote(uri.removeprefix("sqlite:///").partition("?")[0])).absolute()


def sqlalchemy_uri(uri: str) -> str:
    """Return the address of a database for SQLAlchemy, with timeouts unless it has its own."""
    if uri.startswith("sqlite:"):
        return uri if "?" in uri else f"{uri}?timeout={BUSY_SECONDS}"
    address, _, query = uri.replace("postgresql://", "postgresql+psycopg://", 1).partition("?")
    own = [f"{name}={value}" for name, value in _OF_POSTGRES.items() if not re.search(rf"(?:^|&){name}=", query)]
    return f"{address}?{'&'.join([*filter(None, [query]), *own])}"


def without_password(uri: str) -> str:
    """Return `uri` without its password, even if special characters are not percent-encoded."""
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
    if "\\" in text:  # DuckDB reads it as an escape character in patterns
        raise UsageError(f"{text!r} contains a backslash.", "Use another folder, and / as the separator.")
    longest = max((len(os.fsencode(name)) for name in path.parts), default=0)
    if longest > _LONGEST_NAME:
        raise UsageError(
            f"a name in the path has {longest} bytes; the maximum is {_LONGEST_NAME}.", "Use a shorter name."
        )
    if len(os.fsencode(path.absolute())) > _LONGEST_PATH:
        raise UsageError(f"the path has more than {_LONGEST_PATH:,} bytes.", "Use a shorter path.")
