"""Reports of Spark's streaming queries."""

from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener


class ProgressListener(StreamingQueryListener):
    """Passes on Spark's report of each micro-batch, in a thread of Spark."""

    def __init__(self, note: Callable[[Any], object]) -> None:
        self._note = note

    def onQueryStarted(self, event: Any) -> None: ...  # noqa: N802

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        if "addBatch" in event.progress.durationMs:  # otherwise, the query only looked for data
            self._note(event.progress)

    def onQueryIdle(self, event: Any) -> None: ...  # noqa: N802

    def onQueryTerminated(self, event: Any) -> None: ...  # noqa: N802
