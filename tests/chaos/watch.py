"""Notice a file at the moment of its creation in a local folder, and act."""

import re
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Self

from inotify_simple import INotify, flags

_LOOK_AT_END_MS = 200


class Watch:
    """Within the context, call `act` once, as soon as a file with a matching name is created.

    Parameters
    ----------
    folder
        Folder to watch.
    name
        Regular expression that is found in the name.
    act
        Function to call.
    """

    def __init__(self, folder: Path, name: str, act: Callable[[], None]) -> None:
        self._name = re.compile(name)
        self._act = act
        self._inotify = INotify()
        self._inotify.add_watch(folder, flags.CREATE)
        self._done = Event()
        self._thread = Thread(target=self._look, name="watch", daemon=True)
        self.seen: str | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._done.set()
        self._thread.join()
        self._inotify.close()

    def _look(self) -> None:
        while not self._done.is_set():
            for event in self._inotify.read(timeout=_LOOK_AT_END_MS):
                if self._name.search(event.name):
                    self._act()
                    self.seen = event.name
                    return
