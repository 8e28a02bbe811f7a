"""Settings with references to environment variables instead of secrets, for snippets.

A reference is a text that no value contains. :func:`parts` finds references, so that each snippet can write them in its
own language.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from lakeproof.catalog import HIDDEN
from lakeproof.settings import Settings

PASSWORD = "PGPASSWORD"  # noqa: S105 - a variable that Postgres's own tools read
_TOKEN = "LAKE_SERVE_TOKEN"  # noqa: S105
_MARK = "variable-{}-here"
_MARKED = re.compile(r"variable-([A-Z_]+)-here")


@dataclass(frozen=True)
class Variable:
    """A reference to an environment variable."""

    name: str


def referring(settings: Settings) -> Settings:
    """Return the settings with references instead of secrets, and without the password of Postgres."""
    s3 = settings.s3
    changes: dict[str, object] = {}
    if s3.access_key_id and s3.secret_access_key:
        changes["access_key_id"] = reference("AWS_ACCESS_KEY_ID")
        changes["secret_access_key"] = SecretStr(reference("AWS_SECRET_ACCESS_KEY"))
        if s3.session_token:
            changes["session_token"] = SecretStr(reference("AWS_SESSION_TOKEN"))
    catalog = settings.catalog
    if catalog.kind == "sql":
        catalog = catalog.model_copy(update={"uri": _without_secrets(catalog.uri)})
    for field in ("token", "credential"):
        if getattr(catalog, field):
            name = str(type(catalog).model_fields[field].alias)
            catalog = catalog.model_copy(update={field: SecretStr(reference(name))})
    return settings.model_copy(
        update={
            "s3": s3.model_copy(update=changes),
            "serve": settings.serve.model_copy(update={"token": SecretStr(reference(_TOKEN))}),
            "catalog": catalog,
        }
    )


def has_password(settings: Settings) -> bool:
    """Whether the address of the catalog contains a password."""
    address = urlsplit(settings.catalog.uri, allow_fragments=False)
    in_options = "password" in map(_option_name, address.query.split("&"))
    return settings.catalog.kind == "sql" and (address.password is not None or in_options)


def parts(text: str) -> Iterator[str | Variable]:
    """Split a text into literal parts and references."""
    for number, piece in enumerate(_MARKED.split(text)):
        if number % 2:
            yield Variable(piece)
        elif piece:
            yield piece


def variables(texts: list[str]) -> list[str]:
    """Return the names of all variables that texts refer to, in order of first use."""
    found = (part.name for text in texts for part in parts(text) if isinstance(part, Variable))
    return list(dict.fromkeys(found))


def reference(name: str) -> str:
    """Return a reference to a variable."""
    return _MARK.format(name)


def _without_secrets(uri: str) -> str:
    """Remove the password from the address of a database, and refer to variables for its other secret options."""
    address, _, query = uri.partition("?")
    options = []
    for option in filter(None, query.split("&")):
        name = _option_name(option)
        if re.search(HIDDEN, name) and name != "password":
            options.append(f"{name}={reference(f'PG{name.upper()}')}")
        elif name != "password":
            options.append(option)
    address = re.sub(r"(://[^/:@]*):[^/@]*@", r"\1@", address)
    return f"{address}{'?' * bool(options)}{'&'.join(options)}"


def _option_name(option: str) -> str:
    return unquote(option.partition("=")[0])
