"""How large a batch and a record may be: more is not read, and becomes a dead letter by reference."""

from dataclasses import dataclass

from lakeproof.settings import Settings


@dataclass(frozen=True)
class Limits:
    """Sizes up to which batches and records are read, both in bytes.

    Parameters
    ----------
    unpacked_bytes
        Of a batch: as it landed, and unpacked if it is compressed.
    record_bytes
        Of one record, or of whatever a dead letter is to keep.
    """

    unpacked_bytes: int = 1 << 30
    record_bytes: int = 64 << 20

    @classmethod
    def of(cls, settings: Settings) -> "Limits":
        """The limits that the settings name."""
        return cls(settings.max_unpacked_bytes, settings.max_record_bytes)
