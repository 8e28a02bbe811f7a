"""Errors that callers of a storage branch on."""

from lakeproof.errors import LakeproofError, UnavailableError


class FileChangedError(LakeproofError):
    """A landed file was overwritten, against the rule that a landed batch never changes."""

    def __init__(self, uri: str, how: str) -> None:
        super().__init__(
            f"{uri} changed after it was listed: {how}.",
            "Land new content under a new name. Restore the listed content, or wait for the next listing.",
        )
        self.uri = uri


class FileAbsentError(UnavailableError):
    """A landed file is not there: removed, or on a disk that is not mounted. It may come back."""

    def __init__(self, uri: str) -> None:
        super().__init__(
            f"{uri} does not exist.",
            "Mount its disk or restore the file. If it is gone for good, run `consumer give-up`.",
        )
        self.uri = uri
