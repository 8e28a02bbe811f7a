"""PyIceberg's access to the files of a local warehouse."""

from typing import TYPE_CHECKING

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT

if TYPE_CHECKING:
    from pyiceberg.typedef import Properties


class PlainFileIO(PyArrowFileIO):
    """Does not decode paths after ``file:``, like Iceberg's Java library, Hadoop and DuckDB.

    PyIceberg's own FileIO parses a URL and truncates names at ``#`` or ``?``.
    """

    @staticmethod
    def parse_location(location: str, properties: "Properties" = EMPTY_DICT) -> tuple[str, str, str]:
        """Return scheme, host and path of a location."""
        scheme, separator, rest = location.partition(":")
        path = rest.removeprefix("//")  # Iceberg's Java library writes file:/
        if scheme == "file" and separator and path.startswith("/"):
            return scheme, "", path
        other: tuple[str, str, str] = PyArrowFileIO.parse_location(location, properties)
        return other
