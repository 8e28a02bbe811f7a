"""Sinks of batches: one module each."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakeproof.addresses import as_uri, folder_or_address, has_host, with_merged_slashes
from lakeproof.errors import UsageError
from lakeproof.http_server import address_of
from lakeproof.settings import CLICKSTREAM, Settings
from producer.pace import Stop

if TYPE_CHECKING:
    from producer.batches import Batch


class SinkKind(StrEnum):
    """Kinds of sinks."""

    STDOUT = "stdout"
    LOCAL = "local"
    S3 = "s3"
    KAFKA = "kafka"
    HTTP = "http"


class Sink(ABC):
    """Writes batches in order."""

    stop = Stop()
    """Request to end the run, for a sink that would try a batch for long."""

    @abstractmethod
    def write(self, batch: "Batch") -> None:
        """Land a batch as a whole. If it raises, the batch does not count."""

    def landed(self) -> dict[str, Any]:
        """Return entries for the report, for example offsets."""
        return {}


class BatchRefused(Exception):  # noqa: N818 - as expected, not an error
    """A truncated batch was refused and does not count."""


class SinkClosed(Exception):  # noqa: N818 - an end, not an error
    """The receiver of batches has closed the connection."""


_MODULES = {
    SinkKind.STDOUT: "producer.sinks.stdout",
    SinkKind.LOCAL: "producer.sinks.files",
    SinkKind.S3: "producer.sinks.files",
    SinkKind.KAFKA: "producer.sinks.kafka",
    SinkKind.HTTP: "producer.sinks.http",
}
_KIND_OF_SCHEME = {"file": SinkKind.LOCAL, "s3": SinkKind.S3}
_EXAMPLES = {SinkKind.LOCAL: "FOLDER", SinkKind.S3: "s3://BUCKET/PREFIX"}
_WEB = ("http://", "https://")


def choose_sink(
    kind: SinkKind | None, target: str | None, stream: str, settings: Settings, topic: str | None = None
) -> tuple[SinkKind, str]:
    """Choose the kind of sink and its target: a URI, a topic, or "" for standard output."""
    if kind is SinkKind.KAFKA:
        if target:
            raise UsageError("--data-sink kafka cannot be used with --target.", "Use --topic TOPIC.")
        return kind, topic or settings.topic_of(stream)
    if topic:
        raise UsageError("--topic is for --data-sink kafka.", "Add --data-sink kafka, or remove --topic.")
    if kind is SinkKind.HTTP or (kind is None and (target or "").startswith(_WEB)):
        if stream != CLICKSTREAM:
            raise UsageError(f"--data-sink http is for the {CLICKSTREAM}.", "Use `producer clickstream`.")
        url = target or f"{address_of(settings.collector.host, settings.collector.port)}/collect"
        if not target and not has_host(url):
            raise UsageError(
                f"There is no collector at {url}.", "Set LAKE_COLLECTOR_HOST and LAKE_COLLECTOR_PORT, or use --target."
            )
        if not url.startswith(_WEB) or not has_host(url):
            raise UsageError(
                f"--data-sink http does not match --target {target}.", "Use --target http://HOST:PORT/collect."
            )
        return SinkKind.HTTP, url
    if kind is SinkKind.STDOUT:
        if target:
            raise UsageError("--data-sink stdout cannot be used with --target.", "Remove one of them.")
        return kind, ""
    uri = with_merged_slashes(as_uri(folder_or_address(target)) if target else f"{settings.landing.uri}/{stream}")
    scheme, _, rest = uri.partition("://")
    fitting = _KIND_OF_SCHEME.get(scheme)
    if fitting is None or not rest.strip("/"):
        raise UsageError(f"Cannot land batches at {uri}.", "Use a folder, file:///FOLDER or s3://BUCKET/PREFIX.")
    if kind is not None and kind is not fitting:
        example = _EXAMPLES[kind]
        if target:
            raise UsageError(f"--data-sink {kind} does not match --target {target}.", f"Use --target {example}.")
        raise UsageError(
            f"--data-sink {kind} does not match the landing zone {settings.landing.uri}.",
            f"Set LAKE_LANDING={example}, or use --target {example}.",
        )
    return fitting, uri


def open_sink(kind: SinkKind, target: str, settings: Settings) -> Sink:
    """Open the sink that :func:`choose_sink` returned."""
    connect: Callable[[str, Settings], Sink] = import_module(_MODULES[kind]).connect
    return connect(target, settings)
