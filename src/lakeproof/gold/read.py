"""Read a data product from its file."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from lakeproof.contracts.contract import Contract
from lakeproof.contracts.model import DecimalType, Field, ObjectType, PrimitiveType, type_name
from lakeproof.contracts.read.names import identifier
from lakeproof.contracts.read.problems import ContractError, Problems, expected, located_at, refused, validated
from lakeproof.contracts.read.source import Place, read_source
from lakeproof.errors import UsageError
from lakeproof.gold.model import WINDOW_END, WINDOW_START, Key, Measure, Product, Publish, Sink, SinkKind
from lakeproof.gold.window import read_window
from lakeproof.kafka.names import topic_name

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_PAGE = "See docs/gold.md for the keys of a product."
_FLOATING = (PrimitiveType.FLOAT, PrimitiveType.DOUBLE)


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
    sinks: list[Any] = [SinkKind.TABLE]


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
    problems = Problems()
    product = _product(source.document, name, contract_of, problems)
    if problems.found or product is None:
        raise refused(source, origin, problems.found, _path)
    return product


def _told(error: "ErrorDetails") -> ContractError:
    place, kind = located_at(error), error["type"]
    if kind == "missing":
        return ContractError(place[:-1], f"missing key {place[-1]}.", _PAGE, lacks=str(place[-1]))
    if kind == "extra_forbidden":
        return ContractError(place, "unknown key.", _PAGE, about_key=True)
    return ContractError(place, expected(error), _PAGE)


def _path(place: Place) -> str:
    """A place as a person writes it: ``window.size``, ``keys[0]``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).removeprefix(".")


def _product(raw: Any, name: str, contract_of: Callable[[str], Contract], problems: Problems) -> Product | None:
    if not isinstance(raw, dict):
        problems.add(ContractError((), "not a data product: the file has no keys.", _PAGE))
        return None
    document = validated(_Document, raw, problems, _told)
    if document is None:
        return None
    with problems.caught():
        _check_name(document.name, name)
    sinks = _sinks(document, problems)
    window = None
    with problems.caught():
        window = read_window(document.window.size, document.window.every)
    if not document.measures:
        problems.add(
            ContractError(("measures",), "expected at least one measure.", "Add one, like `events: count(*)`.")
        )
    columns: dict[Place, str] = {("keys", index): key.rpartition(".")[2] for index, key in enumerate(document.keys)}
    _check_columns(columns | {("measures", measure): measure for measure in document.measures}, problems)
    contract = None
    with problems.caught():
        contract = _contract(document.silver, contract_of)
    if contract is None:
        return None
    keys = []
    for index, key in enumerate(document.keys):
        with problems.caught():
            keys.append(_key(key, ("keys", index), contract))
    measures = _measures(document.measures, contract, problems)
    if document.publish is Publish.FINAL and contract.silver and contract.silver.horizon is None:
        message = f"windows are never final, because the silver horizon of {contract.stream} is unbounded."
        hint = "Set silverHorizon in the contract, or use publish: updates."
        problems.add(ContractError(("publish",), message, hint))
    if window is None:
        return None
    return Product(
        name=document.name,
        stream=contract.stream,
        description=" ".join(document.description.split()),
        keys=tuple(keys),
        window=window,
        measures=measures,
        publish=document.publish,
        sinks=sinks,
    )


def _sinks(document: _Document, problems: Problems) -> tuple[Sink, ...]:
    found: list[Sink] = []
    for index, raw in enumerate(document.sinks):
        with problems.caught():
            sink = _sink(raw, ("sinks", index), document.name)
            if sink in found:
                raise ContractError(("sinks", index), "duplicate sink.", "Remove one of them.")
            if sink.kind is SinkKind.PARQUET and document.publish is not Publish.FINAL:
                message = "the sink parquet has each window once, so it requires publish: final."
                raise ContractError(("sinks", index), message, "Set publish: final, or use the table.")
            found.append(sink)
    if not problems.found and Sink(SinkKind.TABLE) not in found:
        problems.add(ContractError(("sinks",), "expected the sink table.", "Add it: the other sinks follow the table."))
    return tuple(found)


def _sink(raw: object, place: Place, product: str) -> Sink:
    match raw:
        case "table" | "parquet":
            return Sink(SinkKind(raw))
        case "kafka":
            return Sink(SinkKind.KAFKA, f"gold.{product}")
        case {"kafka": str(topic), **rest} if not rest:
            try:
                return Sink(SinkKind.KAFKA, topic_name(topic))
            except UsageError as error:
                raise ContractError((*place, "kafka"), error.message, error.hint) from None
    known = ", ".join(SinkKind)
    raise ContractError(place, f"unknown sink {raw!r}.", f"Available sinks: {known}, and `kafka: TOPIC`.")


def _check_name(name: str, due: str) -> None:
    if identifier(name, ("name",), "a product") != due:
        raise ContractError(
            ("name",),
            f"the product is named {name!r}, but the file is the product {due!r}.",
            "Use the same name for both. It is also the name of the table.",
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
            "Silver requires a primary key whose fields are required; see docs/contracts/schema.md#silver.",
        )
    return contract


def _key(path: str, place: Place, contract: Contract) -> Key:
    fields: tuple[Field, ...] = contract.current
    field = None
    for name in path.split("."):
        field = next((field for field in fields if field.name == name), None)
        if field is None:
            known = ", ".join(field.name for field in fields)
            raise ContractError(
                place, f"unknown field {path!r}.", _renamed(path, contract) or f"Available fields: {known or 'none'}."
            )
        fields = field.type.fields if isinstance(field.type, ObjectType) else ()
    if field is None or not isinstance(field.type, PrimitiveType | DecimalType) or field.type in _FLOATING:
        kind = type_name(field.type) if field else "nothing"
        raise ContractError(
            place,
            f"expected a scalar that is not a floating-point number, but {path} is {kind}.",
            "Use another field.",
        )
    return Key(tuple(path.split(".")), field.type, field.description)


def _renamed(path: str, contract: Contract) -> str:
    """A hint for the name of a field that was renamed or dropped; empty for any other name."""
    name, dot, rest = path.partition(".")
    field = next((field for field in contract if field.name == contract.renamed.get(name, name)), None)
    if field is None or (field.name == name and not field.dropped):
        return ""
    if field.dropped:
        return f"Contract {contract.version} of {contract.stream} drops {name}. Remove it from the product."
    return f"Contract {contract.version} of {contract.stream} renames {name}. Use {field.name}{dot}{rest}."


def _check_columns(columns: Mapping[Place, str], problems: Problems) -> None:
    """Refuse names that would be one column in SQL."""
    seen: dict[str, str] = {}
    for place, name in columns.items():
        folded = name.lower()
        if folded in (WINDOW_START, WINDOW_END):
            message, hint = f"the name {name!r} is reserved.", "The table has a column of this name."
        elif folded in seen:
            message = f"{seen[folded]!r} and {name!r} would be one column in SQL."
            hint = "Remove or rename one of them."
        else:
            seen[folded] = name
            continue
        problems.add(ContractError(place, message, hint))


def _measures(measures: Mapping[str, str], contract: Contract, problems: Problems) -> tuple[Measure, ...]:
    # Here, so that where there are no products, nobody waits for sqlglot.
    from lakeproof.contracts.rules.types import RuleError, UnknownFieldError
    from lakeproof.gold.measures import parse_measure

    found = []
    for name, sql in measures.items():
        place = ("measures", name)
        with problems.caught():
            try:
                found.append(parse_measure(identifier(name, place, "a measure"), sql, contract.current))
            except RuleError as error:
                hint = (isinstance(error, UnknownFieldError) and _renamed(error.path, contract)) or error.hint
                raise ContractError(place, f"invalid measure: {error}.", hint) from None
    return tuple(found)
