"""Checks of the values of variables, and the types of settings that use them."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, SecretStr

from lakeproof.addresses import database, folder, folder_or_address, is_host, sqlite_uri
from lakeproof.errors import UsageError
from lakeproof.topics import starting_files, starting_offsets, topic_name

_HOST = r"([^/\s:,\[\]]+|\[[0-9A-Fa-f:.]+\])"
_MASTER = re.compile(
    r"local(\[([1-9]\d*|\*)(, *[1-9]\d*)?\])?|local-cluster\[\d+, *\d+, *\d+\]"
    rf"|spark://{_HOST}:\d+(,{_HOST}:\d+)*|yarn|k8s://(https?://)?{_HOST}(:\d+)?(/\S*)?"
)
_BROKER = re.compile(rf"\s*([A-Za-z_]+://)?{_HOST}:(?P<port>\d{{1,5}})\s*")
_MEMORY = re.compile(r"(\d+)([mgt])", re.IGNORECASE)
SHORTCUTS = ("archive", "files", "gateway", "workers")
_LEAST_TOKEN = 16
_TOKEN = re.compile(rf"[A-Za-z0-9._~+/=-]{{{_LEAST_TOKEN},}}")
_ORIGIN = re.compile(r"https?://[^/\s,*?#@]+")
_ADDRESS = re.compile(r"([\w.-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")
_MEGABYTES = {"m": 1, "g": 1024, "t": 1024**2}
LEAST_MEGABYTES = 512


@contextmanager
def refusal() -> Iterator[None]:
    """Turn a UsageError into a ValueError, the only kind to which pydantic adds the variable."""
    try:
        yield
    except UsageError as error:
        raise ValueError(error.message, error.hint) from None


def checked(check: Callable[[str], Any]) -> BeforeValidator:
    """Validate the text of a variable with `check`."""

    def validate(value: Any) -> Any:
        if not isinstance(value, str | Path):
            return value
        with refusal():
            return check(str(value))

    return BeforeValidator(validate)


def spark_master(text: str) -> str:
    """Check the address of a Spark master, and complete it."""
    if not _MASTER.fullmatch(text):
        raise UsageError(
            f"{text!r} is not a Spark master.", "Write local[*], local[4], spark://HOST:PORT, yarn or k8s://HOST:PORT."
        )
    # Completed as by spark-submit: without a scheme, Spark's Kubernetes client would try both.
    return re.sub(r"^k8s://(?!https?://)", "k8s://https://", text)


def memory_size(text: str) -> str:
    """Check a size of memory, as Spark writes it."""
    found = _MEMORY.fullmatch(text)
    if not found or int(found[1]) * _MEGABYTES[found[2].lower()] < LEAST_MEGABYTES:
        raise UsageError(
            f"{text!r} is not a size of memory of {LEAST_MEGABYTES}m or more.",
            "Write a whole number with m or g, like 2g or 1500m.",
        )
    return text


def folder_list(text: str) -> str:
    """Make folders that are separated by commas absolute."""
    return ",".join(str(folder(part.strip()).absolute()) for part in text.split(",") if part.strip())


def shortcut_list(text: str) -> str:
    """Check names of shortcuts, separated by commas."""
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if name not in (*SHORTCUTS, "all"):
            raise UsageError(f"{name!r} is no shortcut.", f"Write some of {', '.join(SHORTCUTS)}, or all.")
    return ",".join(names)


def stream_topic(text: str) -> str:
    """Check a topic's name in which {stream} stands for the stream."""
    topic_name(text.replace("{stream}", "stream"))
    return text


def secret_token(text: str) -> SecretStr:
    """Check a token that clients send."""
    if not _TOKEN.fullmatch(text):
        raise UsageError(
            f"expected at least {_LEAST_TOKEN} letters, digits or characters of -._~+/=.",
            "Make one: python -c 'import secrets; print(secrets.token_urlsafe())'",
        )
    return SecretStr(text)


def header_secret(text: str) -> str:
    """Check a secret that is sent in the headers of requests: clients show a header that they refuse."""
    if not text.isprintable():
        raise UsageError("it contains a control character, such as a line break at its end.", "Remove that.")
    return text


def origin_list(text: str) -> str:
    """Check origins of web pages, separated by commas."""
    origins = [part.strip().rstrip("/") for part in text.split(",")]
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise UsageError(f"{origin!r} is not an origin.", "Write https://HOST or https://HOST:PORT, or *.")
    return ",".join(origins)


def listen_address(text: str) -> str:
    """Check the address that a server listens on."""
    found = _ADDRESS.fullmatch(text)
    if not found or int(found[2]) > 65_535 or not is_host(found[1].strip("[]")):
        raise UsageError(
            f"expected HOST:PORT, got {text!r}.", "Write 127.0.0.1:9108, or 0.0.0.0:9108 for all networks."
        )
    return text


def broker_list(text: str) -> str:
    """Check addresses of brokers, separated by commas."""
    found = [_BROKER.fullmatch(each) for each in text.split(",")]
    if not all(each and int(each["port"]) <= 65_535 for each in found):
        raise UsageError(f"expected HOST:PORT, separated by commas, got {text!r}.", "Write localhost:9092.")
    return text


def offsets_text(text: str) -> str:
    """Check a text that :func:`lakeproof.topics.starting_offsets` reads."""
    starting_offsets(text)
    return text


def files_text(text: str) -> str:
    """Check a text that :func:`lakeproof.topics.starting_files` reads."""
    starting_files(text)
    return text


def database_file(value: Any) -> Any:
    """Convert the path of a default database to a URI."""
    return sqlite_uri(value) if isinstance(value, Path) else value


Folder = Annotated[Path, checked(folder)]
Location = Annotated[str, checked(folder_or_address)]
Database = Annotated[str, checked(database), BeforeValidator(database_file)]
HeaderSecret = Annotated[SecretStr, checked(header_secret)]
