"""The kinds of sources that a stream can come from. A new kind is a line here."""

from collections.abc import Callable
from typing import Any

from consumer.sources.files.source import FileSource
from consumer.sources.kafka.source import KafkaSource
from consumer.sources.source import Source
from lakeproof.settings import Settings

OpenSource = Callable[[Settings, str, str, bool], Source[Any]]
"""Opens a source, from settings, stream, query, and whether it ends with the available data."""

SOURCES: dict[str, OpenSource] = {"files": FileSource, "kafka": KafkaSource}
