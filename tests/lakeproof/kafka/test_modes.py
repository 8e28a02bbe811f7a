"""The settings files of the modes, and their overrides."""

import json
from pathlib import Path

import pytest

from lakeproof.contracts import parse_contract
from lakeproof.errors import UsageError
from lakeproof.kafka.modes import Mode, ModeName, load_mode
from lakeproof.settings import GROUPS

ROOT = Path(__file__).parents[3]
MINUTE = 60_000_000


def dedupe(tmp_path: Path, text: str = "parquet: out", **options: str) -> Mode:
    file = tmp_path / "dedupe.yaml"
    file.write_text(text)
    return load_mode(ModeName.DEDUPE, file, options)[1]


def test_an_option_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "parquet: out\ntopic: of-the-file\nwatermark: 1 hour\nkafka: of-the-file\n"
    monkeypatch.setenv("LAKE_DEDUPE_TOPIC", "of-the-environment")
    monkeypatch.setenv("LAKE_DEDUPE_KAFKA", "of-the-environment-too")
    mode = dedupe(tmp_path, text, topic="of-the-option")
    assert (mode.topic, mode.kafka, mode.watermark) == ("of-the-option", "of-the-environment-too", 60 * MINUTE)


@pytest.mark.parametrize("name", list(ModeName))
def test_every_field_can_be_set_by_each_of_the_three(
    name: ModeName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"watermark": "2 hours", "window": "1 hour", "max_offsets": "7", "starting_offsets": "latest"}
    values |= {"event_time_format": "epoch_ms", "event_time_zone": "Europe/Berlin"}
    fields = [field for field in GROUPS[name].model_fields if field != "home"]
    for field in fields:
        value = values.get(field, f"a-{field}")
        file = tmp_path / "mode.yaml"
        others = {"kafka": "k"} | ({"event_time_format": "yyyy-MM-dd"} if field == "event_time_zone" else {})
        file.write_text(json.dumps(others | {field: value}))
        from_file = load_mode(name, file)
        file.write_text(json.dumps(others))
        assert load_mode(name, file, {field: value}) == from_file
        with monkeypatch.context() as patch:
            patch.setenv(f"LAKE_{name.upper()}_{field.upper()}", value)
            assert load_mode(name, file) == from_file
        assert from_file != load_mode(name, file), field


@pytest.mark.parametrize("name", list(ModeName))
def test_the_files_in_the_repository_are_valid(name: ModeName) -> None:
    mode = load_mode(name, ROOT / f"docs/modes/{name}.yaml")[1]
    assert mode.topic == "incoming-events"
    assert mode.parquet or mode.kafka
    assert (mode.window is None) == (name is ModeName.DEDUPE)


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("topic: t", [], ["no sink", "--parquet FOLDER"]),
        ("", [], ["no sink"]),
        ("parquet: out\nwatermrk: 1 hour", [], ["no field 'watermrk'", "Did you mean watermark?"]),
        ("parquet: out", [("window", "1 hour")], ["command line", "no field 'window'"]),
        ("parquet: out", [("watermark", "soon")], ["watermark: expected a duration", "'soon'"]),
        ("parquet: out\nkafka: incoming-events", [], ["topic and kafka", "the same topic"]),
        ("parquet: out\naside: out", [], ["parquet and aside", "the same folder"]),
        ("parquet: out\nevent_id: eventTime", [], ["the same name"]),
        ("- parquet", [], ["field: value"]),
        ("parquet: [a]", [], ["field: value"]),
        ("parquet: 'a", [], ["not valid YAML"]),
        ("parquet: out\nmax_offsets: 0", [], ["LAKE_DEDUPE_MAX_OFFSETS"]),
        ("parquet: out\nevent_time_format: epoch", [], ["event_time_format: unknown format 'epoch'"]),
        ("parquet: out\nevent_time_format: yyyy-MM-dd HH:mm:ss", [], ["event_time_format:", "no zone is set"]),
        ("parquet: out\nevent_time_zone: UTC", [], ["event_time_zone: the zone has no effect"]),
        ("parquet: ftp://x", [], ["LAKE_DEDUPE_PARQUET"]),
    ],
)
def test_what_cannot_be_used_is_refused_with_what_to_do(
    tmp_path: Path, text: str, options: list[tuple[str, str]], words: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        dedupe(tmp_path, text, **dict(options))
    assert all(word in str(caught.value) for word in words), caught.value
    assert caught.value.hint


def test_windows_divide_a_day() -> None:
    with pytest.raises(UsageError, match="does not divide a day"):
        load_mode(ModeName.WINDOWS, ROOT / "docs/modes/windows.yaml", {"window": "7 minutes"})


def test_a_file_that_was_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        load_mode(ModeName.DEDUPE, tmp_path / "other.yaml")


def test_without_a_file_the_environment_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_mode(ModeName.DEDUPE, None, {"kafka": "k"})[1].checkpoint.endswith("/target/lake/checkpoints/dedupe")


def test_no_stream_has_the_name_of_a_mode() -> None:
    text = (ROOT / "contracts/events.yaml").read_bytes()
    for name in ModeName:
        with pytest.raises(UsageError, match=f"a stream cannot be named {name}") as caught:
            parse_contract(text.replace(b"- name: events\n", f"- name: {name}\n".encode()), "contract")
        assert "Use another name" in str(caught.value)
