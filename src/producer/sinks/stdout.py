"""Print batches, one per line."""

import sys
from typing import TYPE_CHECKING

from lakeproof.errors import OutputClosedError
from lakeproof.settings import Settings
from lakeproof.standard_streams import drop_output
from producer.sinks import Sink, SinkClosed

if TYPE_CHECKING:
    from producer.batches import Batch


def connect(_uri: str, _settings: Settings) -> Sink:
    """Use standard output."""
    return _StdoutSink()


class _StdoutSink(Sink):
    def write(self, batch: "Batch") -> None:
        try:
            data = batch.data
            sys.stdout.buffer.write(data if data.endswith(b"\n") else data + b"\n")
            sys.stdout.buffer.flush()
        except (BrokenPipeError, OutputClosedError):
            drop_output()
            raise SinkClosed from None
