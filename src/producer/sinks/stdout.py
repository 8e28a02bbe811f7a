"""Print batches, one a line."""

import os
import sys

from lakeproof.settings import Settings
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
        except BrokenPipeError:
            # The interpreter flushes once more when it ends; that must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SinkClosed from None
