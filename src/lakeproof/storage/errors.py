"""Errors of storage that callers handle."""

from lakeproof.errors import LakeproofError, UnavailableError


class FileChangedError(LakeproofError):
    """A landed file was overwritten, although landed batches must not change."""

    def __init__(self, uri: str, how: str) -> None:
        super().__init__(
            f"{uri} changed after it was listed: {how}.",
            "Land new content under a new name. Restore the listed content, or wait for the next listing.",
        )
        self.uri = uri


class FileAbsentError(UnavailableError):
    """A landed file is missing: removed, or on a disk that is not mounted."""

    def __init__(self, uri: str) -> None:
        super().__init__(
            f"{uri} does not exist.",
            "Mount its disk or restore the file. If it is gone for good, run `consumer give-up`.",
        )
        self.uri = uri
