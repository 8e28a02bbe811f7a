"""Errors that callers of a storage branch on."""

from lakeproof.errors import LakeproofError


class FileChangedError(LakeproofError):
    """A landed file is gone or was overwritten, against the rule that a landed batch never changes."""

    def __init__(self, uri: str, how: str) -> None:
        super().__init__(
            f"{uri} changed after it was listed: {how}.",
            "Land new content under a new name; put the listed content back, or wait for the next listing.",
        )
        self.uri = uri
