"""Read a data product from its file."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from lakeproof.contracts.contract import Contract
from lakeproof.contracts.maintenance import Maintenance
from lakeproof.contracts.model import DecimalType, Field, ObjectType, PrimitiveType, type_name
from lakeproof.documents.names import identifier
from lakeproof.documents.problems import ContractError, Problems, located_at, read_document, validated
from lakeproof.documents.source import YamlPath, read_source
from lakeproof.errors import UsageError, expected
from lakeproof.gold.model import (
    WINDOW_DAY,
    WINDOW_END,
    WINDOW_START,
    Key,
    Kind,
    Measure,
    Product,
    Publish,
    Sink,
    SinkKind,
    Window,
)
from lakeproof.gold.window import read_session, read_window
from lakeproof.topics import topic_name

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

PAGE = "See docs/gold.md for the keys of a product."
_NO_WINDOW = "Add size for windows of a fixed length, or gap for sessions. See docs/gold.md#windows."
_FLOATING = (PrimitiveType.FLOAT, PrimitiveType.DOUBLE)


class Model(BaseModel):
    """A part of a product's file; unknown keys are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class WindowDocument(Model):
    """The windows of a product."""

    size: str
    every: str | None = None


class _WindowOrSession(Model):
    size: str | None = None
    every: str | None = None
    gap: str | None = None


class _Document(Model):
    name: str
    kind: Literal[Kind.WINDOWS] = Kind.WINDOWS
    silver: str
    description: str = ""
    keys: list[str]
    window: _WindowOrSession
    measures: dict[str, str]
    publish: Publish = Publish.UPDATES
    sinks: list[Any] = [SinkKind.TABLE]
    maintenance: Maintenance = Maintenance()


def product_names(folder: Path) -> list[str]:
    """Names of the products in a folder."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load_products(folder: Path, streams: Sequence[str], contract_of: Callable[[str], Contract]) -> list[Product]:
    """Read the products of windows over the given streams."""
    return [load_product(folder, name, contract_of) for name in names_of_kind(folder, streams, Kind.WINDOWS)]


def names_of_kind(folder: Path, streams: Sequence[str], kind: Kind) -> list[str]:
    """Names of the products of a kind over the given streams."""
    documents = {name: _document_of(folder, name) for name in product_names(folder)}
    return [name for name, each in documents.items() if kind_of(each) is kind and _is_over(each, streams)]


def may_read(folder: Path, name: str, streams: Sequence[str]) -> bool:
    """Whether a product is over one of the given streams, or its file names none, which is an error."""
    return _is_over(_document_of(folder, name), streams)


def _is_over(document: Any, streams: Sequence[str]) -> bool:
    stream = document.get("silver") if isinstance(document, dict) else None
    return not isinstance(stream, str) or stream in streams


def kind_of(document: object) -> Kind:
    """Return the kind of a product's file. Unknown kinds are read as windows, whose model rejects them."""
    found = document.get("kind") if isinstance(document, dict) else None
    return Kind.SAMPLES if found == Kind.SAMPLES else Kind.WINDOWS


def is_of_kind(folder: Path, name: str, kind: Kind) -> bool:
    """Whether a product exists and is of a kind."""
    return name in product_names(folder) and kind_of(_document_of(folder, name)) is kind


def product_text(folder: Path, name: str) -> tuple[bytes, str]:
    """Return the bytes and the path of a product's file."""
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(product_names(folder)) or "none"
        raise UsageError(
            f"No data product {name!r} found at {path}.",
            f"Products in this folder: {known}. Run in the project's folder, or set LAKE_GOLD.",
        )
    try:
        return path.read_bytes(), str(path)
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}.", "Check its permissions.") from error


def _document_of(folder: Path, name: str) -> object:
    return read_source(*product_text(folder, name)).document


def load_product(folder: Path, name: str, contract_of: Callable[[str], Contract]) -> Product:
    """Read ``folder/name.yaml``."""
    text, origin = product_text(folder, name)
    if is_of_kind(folder, name, Kind.SAMPLES):
        raise UsageError(f"{origin} is of the kind samples, not of windows.", "See docs/sensors.md.")
    return parse_product(text, origin, name, contract_of)


def parse_product(text: bytes, origin: str, name: str, contract_of: Callable[[str], Contract]) -> Product:
    """Read a data product from the bytes of its file."""

    def read(document: Any, problems: Problems) -> Product | None:
        return _product(document, name, contract_of, problems)

    return replace(read_document(text, origin, read, path_text), text=text)


def read_under(product: Product, contract: Contract) -> Product:
    """Return the same product over a newer contract that was applied meanwhile.

    Fields have their new types but keep the names that the product uses. Dropped fields are null from now on.
    """
    used = {path.partition(".")[0] for path in product.fields}
    fields = tuple(_as_used(each, used) for each in contract)
    return parse_product(
        product.text, f"gold/{product.name}.yaml", product.name, lambda _: replace(contract, fields=fields)
    )


def _as_used(field: Field, used: Container[str]) -> Field:
    name = next((name for name in field.former_names if name in used), field.name)
    kind = field.type
    if isinstance(kind, ObjectType):
        kind = ObjectType(tuple(_as_used(each, ()) for each in kind.fields))
    return replace(field, name=name, type=kind, dropped=False)


def key_error(error: "ErrorDetails") -> ContractError:
    """Translate a pydantic error about a key."""
    place, kind = located_at(error), error["type"]
    if kind == "missing":
        return ContractError(place[:-1], f"missing key {place[-1]}.", PAGE, lacks=str(place[-1]))
    if kind == "extra_forbidden":
        return ContractError(place, "unknown key.", PAGE, about_key=True)
    return ContractError(place, expected(error), PAGE)


def path_text(_document: object, place: YamlPath) -> str:
    """Format a place like ``window.size`` or ``keys[0]``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).removeprefix(".")


def _product(raw: Any, name: str, contract_of: Callable[[str], Contract], problems: Problems) -> Product | None:
    if not isinstance(raw, dict):
        problems.report((), "not a data product: the file has no keys.", PAGE)
        return None
    document = validated(_Document, raw, problems, key_error)
    if document is None:
        return None
    problems.read(check_name, document.name, name)
    sinks = _sinks(document, problems)
    window = None
    with problems.caught():
        window = _window(document.window, is_whole=not any(each.place[:1] == ("window",) for each in problems.found))
        if window:
            _check_session(window, document, sinks)
    if not document.measures:
        problems.report(("measures",), "expected at least one measure.", "Add one, like `events: count(*)`.")
    columns: dict[YamlPath, str] = {("keys", index): key.rpartition(".")[2] for index, key in enumerate(document.keys)}
    _check_columns(columns | {("measures", measure): measure for measure in document.measures}, problems)
    contract = problems.read(contract_with_silver, document.silver, contract_of)
    if contract is None:
        return None
    keys = [problems.read(_key, key, ("keys", index), contract) for index, key in enumerate(document.keys)]
    measures = _measures(document.measures, contract, problems)
    if document.publish is Publish.FINAL and contract.silver and contract.silver.horizon is None:
        message = f"windows are never final, because the silver horizon of {contract.stream} is unbounded."
        hint = "Set silverHorizon in the contract, or use publish: updates."
        problems.report(("publish",), message, hint)
    if window is None:
        return None
    return Product(
        name=document.name,
        stream=contract.stream,
        description=" ".join(document.description.split()),
        keys=tuple(filter(None, keys)),
        window=window,
        measures=measures,
        publish=document.publish,
        sinks=sinks,
        maintenance=document.maintenance,
    )


def _window(document: _WindowOrSession, *, is_whole: bool) -> Window | None:
    """Read the windows; None if a key was removed because of an error."""
    if document.gap is None:
        if document.size is None:
            if not is_whole:
                return None
            raise ContractError(("window",), "missing key size.", _NO_WINDOW, lacks="size")
        return read_window(document.size, document.every)
    for key in ("size", "every"):
        if getattr(document, key) is not None:
            message = f"sessions have no {key}: they are as long as their records make them."
            raise ContractError(("window", key), message, "Remove it, or remove gap.", about_key=True)
    return read_session(document.gap)


def _check_session(window: Window, document: _Document, sinks: tuple[Sink, ...]) -> None:
    """Refuse sinks and modes that cannot follow sessions, which grow and merge."""
    if not window.session:
        return
    if document.publish is Publish.FINAL:
        message = "sessions cannot be final: how long before the horizon one has begun is not limited."
        raise ContractError(("publish",), message, "Use publish: updates. Or use windows with a size.")
    for index, sink in enumerate(sinks):
        if sink.kind is not SinkKind.TABLE:
            message = f"the sink {sink.kind} would keep sessions that a late record has joined to others."
            raise ContractError(("sinks", index), message, "Use the table, from which they are removed.")


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
        problems.report(("sinks",), "expected the sink table.", "Add it: the other sinks follow the table.")
    return tuple(found)


def _sink(raw: object, place: YamlPath, product: str) -> Sink:
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


def check_name(name: str, stem: str) -> None:
    """Check that a product is named like its file."""
    if identifier(name, ("name",), "a product") != stem:
        raise ContractError(
            ("name",),
            f"the product is named {name!r}, but the file is the product {stem!r}.",
            "Use the same name for both. It is also the name of the table.",
        )


def contract_with_silver(stream: str, contract_of: Callable[[str], Contract]) -> Contract:
    """Return the contract of a product's stream, which must have silver."""
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


def _key(path: str, place: YamlPath, contract: Contract) -> Key:
    fields: tuple[Field, ...] = contract.current
    field = None
    for name in path.split("."):
        field = next((field for field in fields if field.name == name), None)
        if field is None:
            known = ", ".join(field.name for field in fields)
            raise ContractError(
                place,
                f"unknown field {path!r}.",
                renamed_hint(path, contract) or f"Available fields: {known or 'none'}.",
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


def renamed_hint(path: str, contract: Contract) -> str:
    """Return a hint for a field that was renamed or dropped; otherwise empty."""
    name, dot, rest = path.partition(".")
    field = next((field for field in contract if field.name == contract.renamed.get(name, name)), None)
    if field is None or (field.name == name and not field.dropped):
        return ""
    if field.dropped:
        return f"Contract {contract.version} of {contract.stream} drops {name}. Remove it from the product."
    return f"Contract {contract.version} of {contract.stream} renames {name}. Use {field.name}{dot}{rest}."


def _check_columns(columns: Mapping[YamlPath, str], problems: Problems) -> None:
    """Refuse names that would be the same column in SQL."""
    seen: dict[str, str] = {}
    for place, name in columns.items():
        folded = name.lower()
        if folded in (WINDOW_START, WINDOW_END, WINDOW_DAY):
            message, hint = f"the name {name!r} is reserved.", "The table has a column or a partition of this name."
        elif folded in seen:
            message = f"{seen[folded]!r} and {name!r} would be one column in SQL."
            hint = "Remove or rename one of them."
        else:
            seen[folded] = name
            continue
        problems.report(place, message, hint)


def _measures(measures: Mapping[str, str], contract: Contract, problems: Problems) -> tuple[Measure, ...]:
    # Imported here: sqlglot is slow to import and not needed without products.
    from lakeproof.contracts.rules.types import RuleError, UnknownFieldError
    from lakeproof.gold.measures import parse_measure

    found = []
    for name, sql in measures.items():
        place = ("measures", name)
        with problems.caught():
            try:
                found.append(parse_measure(identifier(name, place, "a measure"), sql, contract.current))
            except RuleError as error:
                hint = (isinstance(error, UnknownFieldError) and renamed_hint(error.path, contract)) or error.hint
                raise ContractError(place, f"invalid measure: {error}.", hint) from None
    return tuple(found)
