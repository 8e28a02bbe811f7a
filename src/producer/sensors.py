"""Generator of device readings."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import sin, tau
from random import Random

from producer.batches import Batch, Record, batch_name
from producer.encoding import JsonStyle, encode_record, join_records
from producer.seeds import seeded

_HERTZ = (45.0, 55.0)
_DRIFT_HERTZ = 2.0
_DRIFT_SECONDS = 600.0
_NOISE_HERTZ = 0.3
_ANOMALY_HERTZ = (-10.0, -0.001)
# Number of recent readings that can be duplicated.
_MEMORY = 1_000


@dataclass(frozen=True)
class ReadingsPlan:
    """Parameters of the readings to generate."""

    seed: int
    devices: int
    batch_size: int  # the devices take turns
    # Readings are taken at most this long before their batch lands, so they arrive out of order.
    max_delay: timedelta
    style: JsonStyle
    anomaly: float
    duplicate: float


@dataclass(frozen=True)
class _Device:
    """A device with its base value and the phase of its drift."""

    id: str
    hertz: float
    phase: float


def make_readings(plan: ReadingsPlan, times: Iterable[datetime]) -> Iterator[Batch]:
    """Generate a batch for each of `times`, deterministically."""
    rng, fault_rng = seeded(plan.seed, "readings"), seeded(plan.seed, "faults")
    devices = [
        _Device(f"device-{number:05d}", rng.uniform(*_HERTZ), rng.uniform(0, tau)) for number in range(plan.devices)
    ]
    memory: deque[Record] = deque(maxlen=_MEMORY)
    turn = 0
    for sequence, landing_at in enumerate(times):
        records = []
        for _ in range(plan.batch_size):
            if memory and fault_rng.random() < plan.duplicate:
                original = fault_rng.choice(memory)
                records.append(Record(original.data, duplicate=True, anomaly=original.anomaly, key=original.key))
                continue
            device, turn = devices[turn % plan.devices], turn + 1
            record = _reading(plan, device, landing_at, rng, fault_rng)
            records.append(record)
            memory.append(record)
        data = join_records([record.data for record in records], plan.style)
        yield Batch(batch_name(landing_at, sequence), data, tuple(records), corrupt=False)


def _reading(plan: ReadingsPlan, device: _Device, landing_at: datetime, rng: Random, fault_rng: Random) -> Record:
    made_at = landing_at - plan.max_delay * rng.random() ** 4  # most are recent
    drift = _DRIFT_HERTZ * sin(device.phase + tau * made_at.timestamp() / _DRIFT_SECONDS)
    hertz = device.hertz + drift + rng.gauss(0, _NOISE_HERTZ)
    anomaly = fault_rng.random() < plan.anomaly
    if anomaly:
        hertz = fault_rng.uniform(*_ANOMALY_HERTZ)
    reading = {
        "device_id": device.id,
        "sensor_freq": round(hertz, 3),
        "event_time": made_at.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z",
    }
    return Record(encode_record(reading, plan.style), anomaly=anomaly, key=device.id)
