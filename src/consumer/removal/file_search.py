"""The search of stored files for a person's data."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from consumer.removal.condition import Condition
from consumer.removal.search import is_in_file
from lakeproof.storage import StoredFile
from lakeproof.storage.errors import FileAbsentError

_AT_ONCE = 4  # files that are searched in parallel


class FileSearch:
    """Searches files for a condition, and no version of a file twice once it was found clean."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._clean: set[tuple[str, str]] = set()  # URI and tag

    def matches(self, read: Callable[[str], bytes], files: Iterable[StoredFile]) -> list[str]:
        """Return the URIs of files that match the condition."""
        unseen = [file for file in files if (file.uri, file.etag) not in self._clean]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = pool.map(lambda file: self._is_match(read, file), unseen)
            return [file.uri for file, is_match in zip(unseen, found, strict=True) if is_match]

    def _is_match(self, read: Callable[[str], bytes], file: StoredFile) -> bool:
        try:
            if is_in_file(self._condition, read(file.uri)):
                return True
        except FileAbsentError:
            return False
        self._clean.add((file.uri, file.etag))
        return False
