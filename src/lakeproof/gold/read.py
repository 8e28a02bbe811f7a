"""Read a data product from its file."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from lakeproof.contracts.constraints import ContractError
from lakeproof.contracts.contract import Contract
from lakeproof.contracts.model import DecimalType, Field, PrimitiveType, type_name
from lakeproof.contracts.read.fields import identifier
from lakeproof.contracts.read.source import Place, read_source
from lakeproof.errors import UsageError
from lakeproof.gold.model import WINDOW_END, WINDOW_START, Measure, Product, Publish
from lakeproof.gold.window import read_window

SINKS = ("table",)

_PAGE = "See docs/gold.md for the keys of a product."
_FLOATING = (PrimitiveType.FLOAT, PrimitiveType.DOUBLE)
_EXPECTED = {
    "string_type": "a string",
    "list_type": "a list",
    "dict_type": "keys and values",
    "model_type": "keys and values",
    "enum": f"one of {', '.join(Publish)}",
}
_GOT = {str: "a string", bool: "a boolean", int: "a number", list: "a list", dict: "keys and values"}


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Window(_Model):
    size: str
    every: str | None = None


class _Document(_Model):
    name: str
    silver: str
    description: str = ""
    keys: list[str]
    window: _Window
    measures: dict[str, str]
    publish: Publish = Publish.UPDATES
    sinks: list[str] = list(SINKS)


def product_names(folder: Path) -> list[str]:
    """Names of the products in a folder."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load_products(folder: Path, streams: Sequence[str], contract_of: Callable[[str], Contract]) -> list[Product]:
    """Read the products that read one of these streams. Of the others, only the name of their stream is looked at.

    Raises
    ------
    UsageError
        A file is not a product.
    """
    found = []
    for name in product_names(folder):
        path = folder / f"{name}.yaml"
        document: Any = read_source(path.read_bytes(), str(path)).document
        stream = document.get("silver") if isinstance(document, dict) else None
        if not isinstance(stream, str) or stream in streams:
            found.append(load_product(folder, name, contract_of))
    return found


def load_product(folder: Path, name: str, contract_of: Callable[[str], Contract]) -> Product:
    """Read ``folder/name.yaml``.

    Parameters
    ----------
    folder, name
        The folder of the products, and the name of the product.
    contract_of
        Gives the contract of a stream, by the name of the stream; raises a UsageError if there is none.

    Raises
    ------
    UsageError
        There is no such file, or it is not a product.
    """
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(product_names(folder)) or "none"
        raise UsageError(
            f"No data product {name!r} found at {path}.",
            f"Products in this folder: {known}. Run in the project's folder, or set LAKE_GOLD.",
        )
    return parse_product(path.read_bytes(), str(path), name, contract_of)


def parse_product(text: bytes, origin: str, name: str, contract_of: Callable[[str], Contract]) -> Product:
    """Read a data product from the bytes of its file.

    Parameters
    ----------
    text
        The file's bytes: YAML in UTF-8.
    origin
        Where they came from, for messages.
    name
        The name that the product must have.
    contract_of
        Gives the contract of a stream, by the name of the stream; raises a UsageError if there is none.

    Raises
    ------
    UsageError
        The text is not YAML, not a product, or does not fit the contract of its stream. It names the line and the key.
    """
    source = read_source(text, origin)
    try:
        return _product(_validated(source.document), name, contract_of)
    except ContractError as error:
        key = _path(error.place)
        raise UsageError(
            f"{origin}:{source.line(error.place)}: {f'{key}: ' if key else ''}{error.message}", error.hint
        ) from None


def _validated(document: Any) -> _Document:
    if not isinstance(document, dict):
        raise ContractError((), "not a data product: the file has no keys.", _PAGE)
    try:
        return _Document.model_validate(document)
    except ValidationError as error:
        # An unknown key first: it may be the reason why another one is missing.
        found = error.errors(include_url=False)
        first = next((each for each in found if each["type"] == "extra_forbidden"), found[0])
    place, kind = tuple(step for step in first["loc"] if step != "[key]"), first["type"]
    if kind == "missing":
        raise ContractError(place[:-1], f"missing key {place[-1]}.", _PAGE)
    if kind == "extra_forbidden":
        raise ContractError(place, "unknown key.", _PAGE)
    if kind in _EXPECTED:
        given = first["input"]
        got = repr(given) if kind == "enum" else "null" if given is None else _GOT.get(type(given), "another type")
        raise ContractError(place, f"expected {_EXPECTED[kind]}, got {got}.", _PAGE)
    raise ContractError(place, f"{first['msg']}.", _PAGE)


def _path(place: Place) -> str:
    """A place as a person writes it: ``window.size``, ``keys[0]``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).removeprefix(".")


def _product(document: _Document, name: str, contract_of: Callable[[str], Contract]) -> Product:
    if identifier(document.name, ("name",), "a product") != name:
        raise ContractError(
            ("name",),
            f"the product is named {document.name!r}, but the file is the product {name!r}.",
            "Use the same name for both. It is also the name of the table.",
        )
    contract = _contract(document.silver, contract_of)
    keys = tuple(_key(key, ("keys", index), contract) for index, key in enumerate(document.keys))
    if not document.measures:
        raise ContractError(("measures",), "expected at least one measure.", "Add one, like `events: count(*)`.")
    for index, sink in enumerate(document.sinks):
        if sink not in SINKS:
            raise ContractError(
                ("sinks", index), f"the sink {sink!r} is not available yet.", f"Available sinks: {', '.join(SINKS)}."
            )
    if len(document.sinks) != 1:
        raise ContractError(("sinks",), "expected one sink.", f"Available sinks: {', '.join(SINKS)}.")
    _check_columns(
        {("keys", index): key for index, key in enumerate(document.keys)}
        | {("measures", measure): measure for measure in document.measures}
    )
    if document.publish is Publish.FINAL and contract.silver and contract.silver.horizon is None:
        raise ContractError(
            ("publish",),
            f"windows are never final, because the silver horizon of {contract.stream} is unbounded.",
            "Set silverHorizon in the contract, or use publish: updates.",
        )
    return Product(
        name=document.name,
        stream=contract.stream,
        description=" ".join(document.description.split()),
        keys=keys,
        window=read_window(document.window.size, document.window.every),
        measures=_measures(document.measures, contract.fields),
        publish=document.publish,
        sinks=tuple(document.sinks),
    )


def _contract(stream: str, contract_of: Callable[[str], Contract]) -> Contract:
    try:
        contract = contract_of(identifier(stream, ("silver",), "a stream"))
    except UsageError as error:
        raise ContractError(("silver",), error.message, error.hint) from None
    if contract.silver is None:
        raise ContractError(
            ("silver",),
            f"the stream {stream} has no silver: {contract.no_silver}.",
            "Silver requires a primary key whose fields are required; see docs/contracts.md#silver.",
        )
    return contract


def _key(name: str, place: Place, contract: Contract) -> Field:
    field = next((field for field in contract if field.name == name), None)
    if field is None:
        known = ", ".join(field.name for field in contract)
        raise ContractError(
            place, f"unknown field {name!r}.", f"Use a field that is not inside an object. Available fields: {known}."
        )
    if not isinstance(field.type, PrimitiveType | DecimalType) or field.type in _FLOATING:
        raise ContractError(
            place,
            f"expected a scalar that is not a floating-point number, but {name} is {type_name(field.type)}.",
            "Use another field.",
        )
    return field


def _check_columns(columns: Mapping[Place, str]) -> None:
    """Refuse names that would be one column in SQL."""
    seen: dict[str, str] = {}
    for place, name in columns.items():
        folded = name.lower()
        if folded in (WINDOW_START, WINDOW_END):
            raise ContractError(place, f"the name {name!r} is reserved.", "The table has a column of this name.")
        if folded in seen:
            raise ContractError(
                place,
                f"{seen[folded]!r} and {name!r} would be one column in SQL.",
                "Remove or rename one of them.",
            )
        seen[folded] = name


def _measures(measures: Mapping[str, str], fields: tuple[Field, ...]) -> tuple[Measure, ...]:
    # Here, so that where there are no products, nobody waits for sqlglot.
    from lakeproof.contracts.rules.types import RuleError
    from lakeproof.gold.measures import parse_measure

    found = []
    for name, sql in measures.items():
        place = ("measures", name)
        try:
            found.append(parse_measure(identifier(name, place, "a measure"), sql, fields))
        except RuleError as error:
            raise ContractError(place, f"invalid measure: {error}.", error.hint) from None
    return tuple(found)
