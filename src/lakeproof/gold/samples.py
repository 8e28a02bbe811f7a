"""Model of a product of the kind ``samples``: readings of devices, sampled in windows, and anomalies."""

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum

from lakeproof.contracts.maintenance import AS_SET, Maintenance
from lakeproof.contracts.model import Field
from lakeproof.gold.model import Window

ROLES = "roles"
DETECTOR = "detector"
DETECTED_AT = "detected_at"
MINIMUM = "minimum"
MAXIMUM = "maximum"


class Grouping(StrEnum):
    """The group of readings from which samples are taken."""

    DEVICE = "device"  # readings of a device in a window
    WINDOW = "window"  # readings of all devices in a window


class Role(StrEnum):
    """Why a reading is a sample; a reading may have several roles."""

    FIRST = "first"
    MIDDLE = "middle"
    LAST = "last"
    ANOMALY = "anomaly"


class Detector(StrEnum):
    """Names of detectors."""

    OUT_OF_RANGE = "out_of_range"
    RATE_OF_CHANGE = "rate_of_change"
    STUCK_VALUE = "stuck_value"
    SILENT_DEVICE = "silent_device"


class AlertMode(StrEnum):
    """How fast alerts are sent."""

    REAL_TIME = "real_time"  # Spark's real-time mode: each message at once, at the cost of a core per partition
    MICRO_BATCH = "micro_batch"  # a few times a second


@dataclass(frozen=True)
class Alerts:
    """Topic for values out of range."""

    topic: str
    mode: AlertMode


@dataclass(frozen=True)
class RateOfChange:
    """Detector: the value of a device changes too fast."""

    maximum: float
    within: timedelta  # greatest age of the reading that a value is compared with


@dataclass(frozen=True)
class StuckValue:
    """Detector: the value of a device does not change."""

    readings: int  # number of equal readings in a row that are an anomaly
    within: timedelta  # time up to the newest reading in which no other value occurs


@dataclass(frozen=True)
class SilentDevice:
    """Detector: a device sends nothing."""

    after: timedelta


@dataclass(frozen=True)
class Detectors:
    """Detectors in addition to the range of the contract."""

    rate_of_change: RateOfChange | None = None
    stuck_value: StuckValue | None = None
    silent_device: SilentDevice | None = None

    @property
    def look_back(self) -> timedelta:
        """Greatest age of a reading that can still cause a detection."""
        lengths = [
            self.rate_of_change.within if self.rate_of_change else timedelta(),
            # Whether the previous reading belongs to the same anomaly depends on earlier readings.
            2 * self.stuck_value.within if self.stuck_value else timedelta(),
            self.silent_device.after if self.silent_device else timedelta(),
        ]
        return max(lengths)


@dataclass(frozen=True)
class Samples:
    """A product of two tables: samples of a stream's readings by window, and anomalies."""

    name: str  # also the name of the table of samples
    stream: str
    description: str
    device: Field
    event_time: Field
    value: Field
    by: Grouping
    window: Window
    every: timedelta  # interval between micro-batches
    anomalies: str
    # Values outside are anomalies; None for no limit.
    minimum: float | None
    maximum: float | None
    detectors: Detectors
    # Topic for values out of range, sent at once. The tables do not depend on it.
    alerts: Alerts | None = None
    maintenance: Maintenance = AS_SET  # of its tables; overrides the settings

    @property
    def fields(self) -> set[str]:
        """Names of the fields in use."""
        return {self.device.name, self.event_time.name, self.value.name}

    @property
    def digest(self) -> str:
        """SHA-256 of everything that determines the rows."""
        says = {
            "kind": "samples",
            "name": self.name,
            "stream": self.stream,
            "fields": [field.name for field in (self.device, self.event_time, self.value)],
            "by": self.by,
            "window": [int(length.total_seconds()) for length in (self.window.size, self.window.every)],
            "anomalies": self.anomalies,
            "range": [self.minimum, self.maximum],
            "detectors": asdict(self.detectors),
        }
        return hashlib.sha256(json.dumps(says, sort_keys=True, default=timedelta.total_seconds).encode()).hexdigest()
