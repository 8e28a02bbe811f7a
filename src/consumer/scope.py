"""The scope of a command: what it fills, checked before Spark is imported, which takes a second."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial

from lakeproof.addresses import as_uri, folder_or_address
from lakeproof.contracts import Contract, load_contract
from lakeproof.errors import UsageError
from lakeproof.gold.model import Kind, Product
from lakeproof.gold.product_file import is_of_kind, load_product, load_products
from lakeproof.gold.samples import Samples
from lakeproof.gold.samples_file import load_all_samples, load_samples
from lakeproof.landing.zone import landing_of_contract
from lakeproof.settings import Settings
from lakeproof.topics import starting_files as starts_at
from lakeproof.topics import time_with_zone, topic_name

STREAM = "{stream}"
"""Placeholder for the name of the stream in the name of a topic."""


class LayerName(StrEnum):
    """The last layer that a stream fills."""

    BRONZE = "bronze"
    SILVER = "silver"
    GOLD = "gold"


class DataSource(StrEnum):
    """The place of a stream's batches."""

    LOCAL = "local"
    S3 = "s3"
    KAFKA = "kafka"


@dataclass(frozen=True)
class Period:
    """A period of message times: from `since` to before `until`."""

    since: datetime
    until: datetime


@dataclass(frozen=True)
class Scope:
    """The streams, data products and topics that a command fills; each layer picks its part."""

    settings: Settings
    contracts: Mapping[str, Contract] = field(default_factory=dict)  # by stream
    silver: Sequence[str] = ()  # streams with silver
    products: Sequence[Product] = ()
    samples: Sequence[Samples] = ()
    dead_letter_topics: Mapping[str, str] = field(default_factory=dict)  # by stream
    silver_topics: Mapping[str, str] = field(default_factory=dict)  # by stream


def scope_of_run(settings: Settings, streams: Sequence[str], to: LayerName | None) -> Scope:
    """Return what a run of streams fills, up to a layer; None means all layers of the contracts and data products."""
    # An invalid contract is reported before anything else.
    contracts = {stream: load_contract(settings.contracts, stream) for stream in streams}
    silver = [stream for stream in streams if _has_silver(contracts[stream], to)]
    products, samples = _products(settings, silver, to)
    sinks = settings.sinks
    bad = {stream: sinks.dead_letter_topic.replace(STREAM, stream) for stream in streams if sinks.dead_letter_topic}
    good = {stream: sinks.silver_topic.replace(STREAM, stream) for stream in silver if sinks.silver_topic}
    return Scope(settings, contracts, silver, products, samples, bad, good)


def scope_of_rebuild(settings: Settings, layer: LayerName, name: str) -> Scope:
    """Return what a rebuild fills: silver of a stream, or a data product."""
    contract_of = partial(load_contract, settings.contracts)
    if layer is LayerName.SILVER:
        contract = contract_of(name)
        _has_silver(contract, layer)
        return Scope(settings, {name: contract}, silver=[name])
    products: list[Product] = []
    samples: list[Samples] = []
    if is_of_kind(settings.gold, name, Kind.SAMPLES):
        samples.append(load_samples(settings.gold, name, contract_of))
    else:
        products.append(load_product(settings.gold, name, contract_of))
    (stream,) = [each.stream for each in products] + [each.stream for each in samples]
    contract = contract_of(stream)
    _has_silver(contract, layer)
    return Scope(settings, {stream: contract}, products=products, samples=samples)


def last_layer(text: str | None) -> LayerName | None:
    """Return the layer of --to."""
    if text is None or text in list(LayerName):
        return LayerName(text) if text else None
    raise UsageError(
        f"--to: expected one of {', '.join(LayerName)}, got {text!r}.",
        "For a batch over a past range of a topic, add --from with the time at which it begins.",
    )


def period_of(since: str, to: str | None, streams: Sequence[str], source: DataSource | None) -> Period:
    """Return the period of --from and --to."""
    if source is not DataSource.KAFKA:
        raise UsageError("--from is only for Kafka.", "Add --data-source kafka, or leave out --from.")
    if len(set(streams)) > 1:
        raise UsageError("--from reads one stream at a time.", "Run the command for each.")
    if to is None:
        raise UsageError(
            "--from requires --to.", "Add the time at which the range ends, like --to 2026-11-22T06:00:00Z."
        )
    begin, end = _time("--from", since), _time("--to", to)
    if end <= begin:
        raise UsageError("--to is not after --from.", "Use a later time.")
    if end > datetime.now(UTC):
        raise UsageError(f"--to: {to} is in the future.", "The stream reads what is yet to come. Use a past time.")
    return Period(begin, end)


def with_source(
    settings: Settings, data_source: DataSource | None, topic: str | None, streams: Sequence[str]
) -> Settings:
    """Return the settings with the command line's topic, which takes precedence; check that they fit the source."""
    if data_source is not DataSource.KAFKA:
        if topic:
            raise UsageError("--topic is only for Kafka.", "Add --data-source kafka, or leave out --topic.")
        _check_scheme(settings, data_source, streams)
        return settings
    if topic:
        settings = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"topic": topic})})
    if settings.kafka.topic and len(streams) > 1:
        raise UsageError(
            f"One topic, {settings.kafka.topic}, cannot fill {len(streams)} streams.",
            "Leave out --topic and LAKE_KAFKA_TOPIC: then each stream is read from the topic of its name.",
        )
    return settings


def with_landing(
    settings: Settings,
    data_source: DataSource | None,
    source: str | None,
    starting_files: str | None,
    streams: Sequence[str],
) -> Settings:
    """Return the settings with the command line's address of files and first start; these take precedence."""
    options = {"--source": source, "--starting-files": starting_files}
    if data_source is DataSource.KAFKA:
        refuse_others(options, "with --data-source kafka", "They are for files: see --topic for messages.")
    update: dict[str, str] = {}
    if source:
        if len(set(streams)) > 1:
            raise UsageError("--source is the address of one stream.", "Run the command for each.")
        try:
            update["source"] = as_uri(folder_or_address(source))
        except UsageError as error:
            raise UsageError(f"--source: {error.message}", error.hint) from None
    if starting_files:
        try:
            starts_at(starting_files)
        except UsageError as error:
            raise UsageError(f"--starting-files: {error.message}", error.hint) from None
        update["starting_files"] = starting_files
    return settings.model_copy(update={"landing": settings.landing.model_copy(update=update)})


def _check_scheme(settings: Settings, data_source: DataSource | None, streams: Sequence[str]) -> None:
    """Check that the landing zones match --data-source."""
    scheme = {None: "", DataSource.LOCAL: "file://", DataSource.S3: "s3://"}[data_source]
    for stream in streams:
        location = settings.landing.source or landing_of_contract(settings, stream).location
        uri = as_uri(folder_or_address(location)) if location else settings.landing.uri
        if not uri.startswith(scheme):
            example = "s3://BUCKET/PREFIX" if data_source is DataSource.S3 else "a folder"
            raise UsageError(
                f"--data-source {data_source} does not match the landing zone {uri}.",
                f"Use --source with {example}, or change the location in the contract."
                if location
                else f"Set LAKE_LANDING to {example}.",
            )


def with_sinks(
    settings: Settings, silver_topic: str | None, dead_letter_topic: str | None, streams: Sequence[str]
) -> Settings:
    """Return the settings with the command line's topics, which take precedence."""
    topics = {"silver_topic": silver_topic, "dead_letter_topic": dead_letter_topic}
    sinks = settings.sinks.model_copy(update={name: topic for name, topic in topics.items() if topic})
    for option, topic in (("--silver-topic", sinks.silver_topic), ("--dead-letter-topic", sinks.dead_letter_topic)):
        if topic and STREAM not in topic and len(streams) > 1:
            raise UsageError(
                f"{option}: one topic, {topic}, cannot show {len(streams)} streams.", f"Use a name with {STREAM} in it."
            )
        if topic:
            topic_name(topic.replace(STREAM, streams[0]))
    return settings.model_copy(update={"sinks": sinks})


def refuse_others(options: Mapping[str, object], where: str, hint: str) -> None:
    """Refuse options that would be ignored."""
    for option, value in options.items():
        if value:
            raise UsageError(f"{option} cannot be used {where}.", hint)


def _has_silver(contract: Contract, to: LayerName | None) -> bool:
    if to in (LayerName.SILVER, LayerName.GOLD) and contract.no_silver:
        raise UsageError(f"{contract.stream} has no silver: {contract.no_silver}.", "Use --to bronze.")
    return contract.silver is not None and to is not LayerName.BRONZE


def _products(settings: Settings, streams: Sequence[str], to: LayerName | None) -> tuple[list[Product], list[Samples]]:
    """Return the data products that read silver of these streams."""
    if to not in (None, LayerName.GOLD) or not streams:
        return [], []
    contract_of = partial(load_contract, settings.contracts)
    found = load_products(settings.gold, streams, contract_of)
    samples = load_all_samples(settings.gold, streams, contract_of)
    read = {each.stream for each in found} | {each.stream for each in samples}
    without = [stream for stream in streams if stream not in read]
    if to is LayerName.GOLD and without:
        raise UsageError(f"No data product in {settings.gold} reads {without[0]}.", "Use --to silver.")
    return found, samples


def _time(option: str, text: str) -> datetime:
    if time := time_with_zone(text):
        return time
    raise UsageError(f"{option}: expected a time with its zone, got {text!r}.", "Write it like 2026-11-22T06:00:00Z.")
