"""Read where the files of a stream land: the server ``landing``, and the custom property ``landing``."""

import re
from collections.abc import Mapping, Sequence

from open_data_contract_standard.model import CustomProperty, Server

from lakeproof.addresses import folder_or_address, web_address
from lakeproof.contracts.model import Landing
from lakeproof.contracts.read.custom_properties import LANDING, custom_values
from lakeproof.documents.problems import ContractError, Problems, near
from lakeproof.documents.source import YamlPath
from lakeproof.errors import UsageError

_SERVERS = "servers"
_TYPES = ("s3", "local")
_KEYS = ("include", "exclude")
_GLOB = re.compile(r"\*|\{.*\}")
_EXAMPLE = "Write it like `{include: ['**/*.json.gz'], exclude: ['tmp/**']}`."
_SERVER_EXAMPLE = "Write it like `{server: landing, type: s3, location: s3://BUCKET/PREFIX}`."


def read_landing(
    servers: Sequence[Server], customs: Sequence[CustomProperty], problems: Problems, *, is_recorded: bool = False
) -> Landing:
    """Read the landing zone of a contract. Servers of other names belong to other tools.

    What was accepted once stays readable in recorded contracts, from which nothing is listed.
    """
    location = endpoint = None
    named = [(index, each) for index, each in enumerate(servers) if each.server == LANDING]
    for index, server in named[:1]:
        location = problems.read(_location, server, (_SERVERS, index))
        endpoint = server.endpointUrl
        if not is_recorded:
            problems.read(_check_no_glob, server, (_SERVERS, index))
            problems.read(_check_endpoint, endpoint, (_SERVERS, index, "endpointUrl"))
    for index, _ in named[1:]:
        problems.report((_SERVERS, index, "server"), f"duplicate server {LANDING!r}.", "Remove one of them.")
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    for _, value, place in custom_values(customs, (), LANDING):
        with problems.caught():
            include, exclude = _globs(value, place)
    return Landing(location, endpoint, include, exclude)


def _location(server: Server, place: YamlPath) -> str:
    if server.type not in _TYPES:
        raise ContractError(
            (*place, "type"),
            f"unknown type {server.type!r} of the server {LANDING}.",
            f"Expected {' or '.join(_TYPES)}.",
        )
    key = "location" if server.location else "path"
    location = server.location or server.path
    if not location:
        raise ContractError(place, f"the server {LANDING} has no location.", _SERVER_EXAMPLE, lacks="location")
    try:
        folder_or_address(location)
    except UsageError as error:
        raise ContractError((*place, key), error.message, error.hint) from None
    if (server.type == "s3") != location.startswith("s3://"):
        raise ContractError((*place, key), f"{location} is not of the type {server.type}.", _SERVER_EXAMPLE)
    return location


def _check_no_glob(server: Server, place: YamlPath) -> None:
    key, location = ("location", server.location) if server.location else ("path", server.path)
    if location and _GLOB.search(location):
        raise ContractError(
            (*place, key),
            f"expected a folder or an address without a glob, got {location!r}.",
            f"Use s3://BUCKET/PREFIX, and {{property: {LANDING}, value: {{include: ['*.json']}}}}.",
        )


def _check_endpoint(endpoint: str | None, place: YamlPath) -> None:
    try:
        if endpoint:
            web_address(endpoint)
    except UsageError as error:
        raise ContractError(place, error.message, error.hint) from None


def _globs(value: object, place: YamlPath) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if not isinstance(value, Mapping):
        raise ContractError(place, f"{LANDING}: expected the keys {' or '.join(_KEYS)}, got {value!r}.", _EXAMPLE)
    if unknown := [str(key) for key in value if key not in _KEYS]:
        meant = near(unknown[0], [*_KEYS])
        hint = f"Did you mean {meant}?" if meant else _EXAMPLE
        raise ContractError((*place, unknown[0]), f"{LANDING}: unknown key {unknown[0]!r}.", hint, about_key=True)
    include, exclude = (_list(value.get(key), (*place, key)) for key in _KEYS)
    return include, exclude


def _list(value: object, place: YamlPath) -> tuple[str, ...]:
    globs = [] if value is None else value if isinstance(value, list) else [value]
    for glob in globs:
        if not isinstance(glob, str) or not all(glob.split("/")):
            raise ContractError(
                place,
                f"{LANDING}: expected a glob of names below the landing zone, got {glob!r}.",
                f"No slash comes first, last or twice. {_EXAMPLE}",
            )
    return tuple(globs)
