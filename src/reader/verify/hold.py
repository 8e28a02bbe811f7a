"""Keep the snapshots that a long check reads until it ends."""

import os
import platform
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from functools import partial

from lakeproof.catalog import open_catalog
from lakeproof.contracts import Maintenance
from lakeproof.errors import UsageError
from lakeproof.holds import holding
from lakeproof.settings import Settings


def holding_streams(settings: Settings, streams: Sequence[str]) -> AbstractContextManager[None]:
    """Hold the tables of streams, so that maintenance keeps snapshots in use: see :func:`lakeproof.holds.holding`."""

    def tables() -> tuple[Sequence[str], timedelta]:
        from lakeproof.tables.of_stream import tables_of_stream  # reads all products: only in this thread

        found: dict[str, Maintenance] = {}
        for stream in streams:
            with suppress(UsageError):  # an error in a contract or a product: the driver reports it
                found |= tables_of_stream(settings, stream)
        own = [each.keep_hours for each in found.values() if each.keep_hours is not None]
        return list(found), timedelta(hours=min([settings.maintenance.keep_hours, *own]))

    host = re.sub(r"\W", "-", platform.node(), flags=re.ASCII)
    return holding(partial(open_catalog, settings), tables, f"verify-{host}-{os.getpid()}")
