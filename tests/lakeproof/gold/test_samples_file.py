"""The file of a product of samples: valid contents, and error messages for its author."""

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from lakeproof.contracts import Contract, load_contract, parse_contract
from lakeproof.errors import UsageError
from lakeproof.gold.model import Kind, Window
from lakeproof.gold.product_file import is_of_kind, load_product, load_products, names_of_kind
from lakeproof.gold.samples import (
    AlertMode,
    Alerts,
    Detectors,
    Grouping,
    RateOfChange,
    Samples,
    SilentDevice,
    StuckValue,
)
from lakeproof.gold.samples_file import load_all_samples, load_samples, parse_samples

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "gold" / "sensor_samples.yaml").read_text()
CONTRACT = (ROOT / "contracts" / "sensors.yaml").read_text()


def samples(old: str = "", new: str = "", contract: str = CONTRACT) -> Samples:
    assert old in TEXT

    def contract_of(stream: str) -> Contract:
        if stream != "sensors":
            raise UsageError(f"No contract found for the stream {stream!r}.", "Correct it.")
        return parse_contract(contract.encode(), "sensors.yaml")

    text = TEXT.replace(old, new, 1) if old else TEXT
    return parse_samples(text.encode(), "sensor_samples.yaml", "sensor_samples", contract_of, ["user_activity"])


def test_the_product_that_is_shipped() -> None:
    made = samples()
    assert (made.name, made.stream, made.anomalies) == ("sensor_samples", "sensors", "sensor_anomalies")
    fields = (made.device, made.event_time, made.value)
    assert [field.name for field in fields] == ["device_id", "event_time", "sensor_freq"]
    assert made.window == Window(timedelta(minutes=1), timedelta(seconds=30))
    assert (made.by, made.every) == (Grouping.DEVICE, timedelta(seconds=10))
    assert (made.minimum, made.maximum) == (0.0, None)
    assert made.detectors == Detectors(
        RateOfChange(50.0, timedelta(seconds=10)),
        StuckValue(10, timedelta(seconds=30)),
        SilentDevice(timedelta(minutes=1)),
    )
    assert made.detectors.look_back == timedelta(minutes=1)
    assert made.alerts == Alerts("sensors.anomalies", AlertMode.REAL_TIME)


def test_the_defaults() -> None:
    made = samples(TEXT[TEXT.index("detectors:") :], "")
    assert made.detectors == Detectors()
    assert made.detectors.look_back == timedelta()
    assert samples("by: device\n").by is Grouping.DEVICE
    assert samples("trigger: 10 seconds\n").every == timedelta(seconds=10)
    assert samples("by: device", "by: window").by is Grouping.WINDOW


MISTAKES = [
    ("name: sensor_samples", "name: other", 1, "the product is named 'other'"),
    ("silver: sensors", "silver: sensor", 3, "silver: No contract found"),
    ("device: device_id", "device: device", 5, "device: unknown field 'device'"),
    ("device: device_id", "device: sensor_freq", 5, "expected a required string or scalar, but sensor_freq is double"),
    ("value: sensor_freq", "value: device_id", 6, "expected a required double, but device_id is scalar"),
    ("by: device", "by: user", 7, "by: "),
    ("size: 1 minute", "size: 7 seconds", 9, "window.size: 7 seconds does not divide a day"),
    ("every: 30 seconds", "every: 40 seconds", 10, "window.every"),
    ("trigger: 10 seconds", "trigger: often", 11, "trigger: expected a duration"),
    ("anomalies: sensor_anomalies", "anomalies: Sensor_Samples", 12, "is the name of a product"),
    ("anomalies: sensor_anomalies", "anomalies: user_activity", 12, "is the name of a product"),
    ("anomalies: sensor_anomalies\n", "", 1, "missing key anomalies"),
    ("maximum: 50", "maximum: -1", 15, "detectors.rate_of_change.maximum"),
    ("maximum: 50", "maximum: .inf", 15, "detectors.rate_of_change.maximum"),
    ("within: 10 seconds", "within: ten", 16, "detectors.rate_of_change.within: expected a duration"),
    ("readings: 10", "readings: 1", 18, "detectors.stuck_value.readings"),
    ("within: 30 seconds", "within: 0 seconds", 19, "detectors.stuck_value.within"),
    ("after: 1 minute", "after: 1 fortnight", 21, "detectors.silent_device.after: expected a duration"),
    ("topic: sensors.anomalies", "topic: a b", 23, "alerts.topic: 'a b' is not the name of a Kafka topic"),
    ("mode: real_time", "mode: fast", 24, "alerts.mode"),
    ("silent_device", "sleepy_device", 20, "detectors.sleepy_device: unknown key"),
]


@pytest.mark.parametrize(("old", "new", "line", "message"), MISTAKES)
def test_a_mistake_is_told_with_its_line(old: str, new: str, line: int, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        samples(old, new)
    assert f"sensor_samples.yaml:{line}:" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("value: 30 seconds", "value: unbounded", "windows are never final"),
        ("name: event_time\n", "name: window_end\n", "cannot be a column of samples"),
        ("name: device_id", "name: detector", "the name 'detector' is reserved"),
        ("property: anomalyBelow", "property: acme.below", "there is nothing to alert of"),
    ],
)
def test_a_contract_that_does_not_fit(old: str, new: str, message: str) -> None:
    contract = CONTRACT.replace(old, new).replace(
        "value: event_time", f"value: {new[6:].strip()}" if "end" in new else "value: event_time"
    )
    assert contract != CONTRACT
    with pytest.raises(UsageError) as caught:
        samples("device: device_id", "device: detector" if "detector" in new else "device: device_id", contract)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("key", "refused"),
    [
        (("device_id", "event_time", "sensor_freq"), ""),
        (("device_id", "event_time"), ""),
        (("device_id",), ""),
        (("reading_id",), "the primary key of sensors has reading_id, so silver can have the same reading"),
        (("device_id", "event_time", "reading_id"), "(device_id, event_time, sensor_freq) in several rows"),
    ],
)
def test_a_reading_must_be_in_one_row_of_silver(key: tuple[str, ...], refused: str) -> None:
    contract = re.sub(r" *primaryKey.*\n", "", CONTRACT)
    contract += "      - name: reading_id\n        logicalType: string\n        required: true\n"
    for place, name in enumerate(key, 1):
        keyed = f"name: {name}\n        primaryKey: true\n        primaryKeyPosition: {place}\n"
        contract = contract.replace(f"name: {name}\n", keyed)
    if not refused:
        samples(contract=contract)
        return
    with pytest.raises(UsageError) as caught:
        samples(contract=contract)
    assert "sensor_samples.yaml:3:" in str(caught.value)
    assert refused in str(caught.value)
    assert "Make device_id and event_time the primary key in the contract" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("by: device", "by: window"),
        ("size: 1 minute", "size: 2 minutes"),
        ("anomalies: sensor_anomalies", "anomalies: odd"),
        ("maximum: 50", "maximum: 50.5"),
        ("after: 1 minute", "after: 2 minutes"),
    ],
)
def test_the_digest_is_of_what_rows_depend_on(old: str, new: str) -> None:
    assert samples(old, new).digest != samples().digest


def test_the_digest_is_not_of_what_rows_do_not_depend_on() -> None:
    assert samples("trigger: 10 seconds", "trigger: 5 seconds").digest == samples().digest
    assert samples("mode: real_time", "mode: micro_batch").digest == samples().digest
    assert samples("each device", "every device").digest == samples().digest
    assert replace(samples(), minimum=-1.0).digest != samples().digest


def test_kinds_are_read_apart(tmp_path: Path) -> None:
    folder = ROOT / "gold"

    def contract_of(stream: str) -> Contract:
        return load_contract(ROOT / "contracts", stream)

    assert "sensor_samples" not in [each.name for each in load_products(folder, ["sensors", "events"], contract_of)]
    assert [each.name for each in load_all_samples(folder, ["sensors"], contract_of)] == ["sensor_samples"]
    assert load_all_samples(folder, ["events"], contract_of) == []
    assert is_of_kind(folder, "sensor_samples", Kind.SAMPLES)
    assert not is_of_kind(folder, "nothing", Kind.SAMPLES)
    with pytest.raises(UsageError, match="is of the kind samples"):
        load_product(folder, "sensor_samples", contract_of)
    with pytest.raises(UsageError, match="No data product 'nothing' found"):
        load_samples(folder, "nothing", contract_of)
    (tmp_path / "odd.yaml").write_text("kind: strange\nname: odd\n")
    assert names_of_kind(tmp_path, ["sensors"], Kind.WINDOWS) == ["odd"]
    with pytest.raises(UsageError, match="kind: "):
        load_product(tmp_path, "odd", contract_of)


def test_no_two_products_have_the_same_anomalies(tmp_path: Path) -> None:
    def contract_of(_stream: str) -> Contract:
        return parse_contract(CONTRACT.encode(), "sensors.yaml")

    (tmp_path / "sensor_samples.yaml").write_text(TEXT)
    (tmp_path / "broken.yaml").write_text("a: [")
    assert load_samples(tmp_path, "sensor_samples", contract_of).anomalies == "sensor_anomalies"
    other = TEXT.replace("name: sensor_samples", "name: others").replace("sensor_anomalies", "Sensor_Anomalies")
    (tmp_path / "others.yaml").write_text(other)
    with pytest.raises(UsageError, match="'Sensor_Anomalies' is the name of a product, or of the anomalies of another"):
        load_samples(tmp_path, "others", contract_of)
