"""Print batches, one per line."""

import sys
from typing import TYPE_CHECKING, Any

from lakeproof.errors import OutputClosedError
from lakeproof.settings import Settings
from lakeproof.streams import drop_output
from producer.sinks import SinkClosed

if TYPE_CHECKING:
    from producer.batches import Batch


def connect(_uri: str, _settings: Settings) -> "StdoutSink":
    """Use standard output."""
    return StdoutSink()


class StdoutSink:
    """See :class:`producer.sinks.Sink`."""

    def write(self, batch: "Batch") -> None:
        """Print a batch with a line end; see the protocol."""
        try:
            data = batch.data
            sys.stdout.buffer.write(data if data.endswith(b"\n") else data + b"\n")
            sys.stdout.buffer.flush()
        except (BrokenPipeError, OutputClosedError):
            drop_output()
            raise SinkClosed from None

    def landed(self) -> dict[str, Any]:
        """Nothing."""
        return {}
