"""Print batches, one a line."""

import sys

from lakeproof.errors import OutputClosedError
from lakeproof.settings import Settings
from lakeproof.streams import drop_output
from producer.sinks import SinkClosed


def connect(_uri: str, _settings: Settings) -> "StdoutSink":
    """Use standard output."""
    return StdoutSink()


class StdoutSink:
    """See :class:`producer.sinks.Sink`."""

    def write(self, _name: str, data: bytes) -> None:
        """Print a batch and a line end, unless it has one; see the protocol."""
        try:
            sys.stdout.buffer.write(data if data.endswith(b"\n") else data + b"\n")
            sys.stdout.buffer.flush()
        except (BrokenPipeError, OutputClosedError):
            drop_output()
            raise SinkClosed from None
