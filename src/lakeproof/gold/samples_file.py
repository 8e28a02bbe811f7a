"""Read a data product of the kind ``samples`` from its file."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import Field as Limits

from lakeproof.contracts.contract import Contract
from lakeproof.contracts.maintenance import Maintenance
from lakeproof.contracts.model import Field, PrimitiveType, type_name
from lakeproof.documents.names import identifier
from lakeproof.documents.problems import ContractError, Problems, read_document, validated
from lakeproof.documents.source import YamlPath, read_source
from lakeproof.errors import UsageError
from lakeproof.gold.model import WINDOW_DAY, WINDOW_END, WINDOW_START, Kind, Product
from lakeproof.gold.product_file import (
    Model,
    WindowDocument,
    check_name,
    contract_with_silver,
    is_of_kind,
    key_error,
    load_product,
    names_of_kind,
    path_text,
    product_names,
    product_text,
    renamed_hint,
)
from lakeproof.gold.samples import (
    DETECTED_AT,
    DETECTOR,
    MAXIMUM,
    MINIMUM,
    ROLES,
    AlertMode,
    Alerts,
    Detectors,
    Grouping,
    RateOfChange,
    Samples,
    SilentDevice,
    StuckValue,
)
from lakeproof.gold.window import duration_at, read_window
from lakeproof.topics import topic_name

_RESERVED = (WINDOW_START, WINDOW_END, WINDOW_DAY, ROLES, DETECTOR, DETECTED_AT, MINIMUM, MAXIMUM)
_MAX_READINGS = 100_000


class _RateOfChange(Model):
    maximum: float = Limits(ge=0, allow_inf_nan=False)
    within: str


class _StuckValue(Model):
    readings: int = Limits(ge=2, le=_MAX_READINGS)
    within: str


class _SilentDevice(Model):
    after: str


class _Detectors(Model):
    rate_of_change: _RateOfChange | None = None
    stuck_value: _StuckValue | None = None
    silent_device: _SilentDevice | None = None


class _Alerts(Model):
    topic: str
    mode: AlertMode = AlertMode.REAL_TIME


class _Document(Model):
    name: str
    kind: Literal[Kind.SAMPLES]
    silver: str
    description: str = ""
    device: str
    value: str
    by: Grouping = Grouping.DEVICE
    window: WindowDocument
    trigger: str = "10 seconds"
    anomalies: str
    detectors: _Detectors = _Detectors()
    alerts: _Alerts | None = None
    maintenance: Maintenance = Maintenance()


def load_all_samples(folder: Path, streams: Sequence[str], contract_of: Callable[[str], Contract]) -> list[Samples]:
    """Read the products of samples over the given streams."""
    return [load_samples(folder, name, contract_of) for name in names_of_kind(folder, streams, Kind.SAMPLES)]


def load_any(folder: Path, name: str, contract_of: Callable[[str], Contract]) -> Product | Samples:
    """Read ``folder/name.yaml``, of either kind."""
    load = load_samples if is_of_kind(folder, name, Kind.SAMPLES) else load_product
    return load(folder, name, contract_of)


def load_samples(folder: Path, name: str, contract_of: Callable[[str], Contract]) -> Samples:
    """Read ``folder/name.yaml``."""
    text, origin = product_text(folder, name)
    others = [each for each in product_names(folder) if each != name]
    return parse_samples(text, origin, name, contract_of, [*others, *_anomalies(folder, others)])


def _anomalies(folder: Path, products: Sequence[str]) -> Iterator[str]:
    """Yield the names of the tables of anomalies of some products."""
    for name in products:
        with suppress(UsageError):  # reported for that product
            document = read_source(*product_text(folder, name)).document
            if isinstance(document, dict) and isinstance(document.get("anomalies"), str):
                yield document["anomalies"]


def parse_samples(
    text: bytes, origin: str, name: str, contract_of: Callable[[str], Contract], others: Sequence[str] = ()
) -> Samples:
    """Read a product of samples from the bytes of its file; `others` are the names of other tables of gold."""

    def read(document: Any, problems: Problems) -> Samples | None:
        return _samples(document, name, contract_of, others, problems)

    return read_document(text, origin, read, path_text)


def _samples(
    raw: Any, name: str, contract_of: Callable[[str], Contract], others: Sequence[str], problems: Problems
) -> Samples | None:
    document = validated(_Document, raw, problems, key_error)
    if document is None:
        return None
    problems.read(check_name, document.name, name)
    problems.read(_check_anomalies, document, others)
    window = problems.read(read_window, document.window.size, document.window.every)
    every = problems.read(duration_at, document.trigger, ("trigger",))
    detectors = _detectors(document.detectors, problems)
    alerts = problems.read(_alerts, document.alerts) if document.alerts else None
    contract = problems.read(contract_with_silver, document.silver, contract_of)
    if contract is None:
        return None
    texts = (PrimitiveType.STRING, PrimitiveType.SCALAR)
    device = problems.read(_field, document.device, ("device",), contract, *texts)
    value = problems.read(_field, document.value, ("value",), contract, PrimitiveType.DOUBLE)
    event_time = problems.read(_event_time, contract)
    if document.alerts and value and not value.expected:
        message = f"there is nothing to alert of: the contract of {contract.stream} has no range for {document.value}."
        problems.report(("alerts",), message, "Set anomalyBelow or anomalyAbove in the contract.")
    if window is None or every is None or device is None or value is None or event_time is None:
        return None
    problems.read(_check_key, contract, [device.name, event_time.name, value.name])
    return Samples(
        name=document.name,
        stream=contract.stream,
        description=" ".join(document.description.split()),
        device=device,
        event_time=event_time,
        value=value,
        by=document.by,
        window=window,
        every=every,
        anomalies=document.anomalies,
        minimum=None if value.expected.minimum is None else float(value.expected.minimum),
        maximum=None if value.expected.maximum is None else float(value.expected.maximum),
        detectors=detectors,
        alerts=alerts,
        maintenance=document.maintenance,
    )


def _check_anomalies(document: _Document, others: Sequence[str]) -> None:
    place = ("anomalies",)
    name = identifier(document.anomalies, place, "a table").lower()
    if name in {document.name.lower(), *(other.lower() for other in others)}:
        message = f"{document.anomalies!r} is the name of a product, or of the anomalies of another one."
        raise ContractError(place, message, "Use another name.")


def _field(name: str, place: YamlPath, contract: Contract, *kinds: PrimitiveType) -> Field:
    expected = " or ".join(kinds)
    field = next((field for field in contract.live if field.name == name), None)
    if field is None:
        known = ", ".join(field.name for field in contract.live if field.type in kinds and field.required) or "none"
        hint = f"Required fields of the type {expected}: {known}."
        raise ContractError(place, f"unknown field {name!r}.", renamed_hint(name, contract) or hint)
    if field.type not in kinds or not field.required:
        found = type_name(field.type) if field.required else f"an optional {type_name(field.type)}"
        raise ContractError(place, f"expected a required {expected}, but {name} is {found}.", "Use another field.")
    if name.lower() in _RESERVED:
        raise ContractError(place, f"the name {name!r} is reserved.", "The tables have a column of this name.")
    return field


def _event_time(contract: Contract) -> Field:
    place = ("silver",)
    if contract.silver and contract.silver.horizon is None:
        message = f"windows are never final, because the silver horizon of {contract.stream} is unbounded."
        raise ContractError(place, message, "Set silverHorizon in the contract.")
    found = next((field for field in contract.live if field.name == contract.event_time), None)
    if found is None or found.name.lower() in _RESERVED:
        message = f"the event time of {contract.stream} is {contract.event_time}, which cannot be a column of samples."
        raise ContractError(place, message, "Use a stream whose event time is a field outside of objects.")
    return found


def _check_key(contract: Contract, reading: Sequence[str]) -> None:
    """Check that silver has each reading once: samples and detectors do not tell equal readings apart."""
    others = [name for name in contract.primary_key if name not in reading]
    if others:
        device, time, value = reading
        message = (
            f"the primary key of {contract.stream} has {', '.join(others)}, so silver can have the same reading "
            f"({device}, {time}, {value}) in several rows."
        )
        hint = f"Make {device} and {time} the primary key in the contract, with or without {value}."
        raise ContractError(("silver",), message, hint)


def _detectors(document: _Detectors, problems: Problems) -> Detectors:
    def duration(detector: str, key: str) -> timedelta | None:
        declared = getattr(document, detector)
        return declared and problems.read(duration_at, getattr(declared, key), ("detectors", detector, key))

    rate, stuck = document.rate_of_change, document.stuck_value
    rate_within, stuck_within = duration("rate_of_change", "within"), duration("stuck_value", "within")
    silent_after = duration("silent_device", "after")
    return Detectors(
        rate_of_change=RateOfChange(rate.maximum, rate_within) if rate and rate_within else None,
        stuck_value=StuckValue(stuck.readings, stuck_within) if stuck and stuck_within else None,
        silent_device=SilentDevice(silent_after) if silent_after else None,
    )


def _alerts(document: _Alerts) -> Alerts:
    try:
        return Alerts(topic_name(document.topic), document.mode)
    except UsageError as error:
        raise ContractError(("alerts", "topic"), error.message, error.hint) from None
