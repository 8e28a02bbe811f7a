"""The consumer as a process: its messages, exit codes, and end."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.consumer.lake import Drain
from tests.logs import failure
from tests.programs import forked

from lakeproof.settings import Settings

ROOT = Path(__file__).parents[2]
EVENT = {"user_id": "u", "event_timestamp": "2026-11-21T06:00:00Z", "event_type": "page_view", "properties": {}}


def environment(settings: Settings) -> dict[str, str]:
    return os.environ | {
        "LAKE_HOME": str(settings.home),
        "LAKE_CONTRACTS": str(settings.contracts),
        "LAKE_JARS": str(settings.spark.jars),
        "LAKE_SPARK_UI_PORT": "0",
        "LAKE_SETTLE_SECONDS": "0.2",
    }


def consumer(settings: Settings, *arguments: str, **changes: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*forked("consumer"), *arguments],
        env=environment(settings) | changes,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def land(settings: Settings, first: int, count: int) -> None:
    folder = settings.home / "landing" / "events"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        (folder / f"{number:06}.json.tmp").write_text(json.dumps([EVENT | {"event_id": str(number)}]))
        (folder / f"{number:06}.json.tmp").rename(folder / f"{number:06}.json")


@pytest.mark.parametrize(
    ("arguments", "changes", "exit_code", "words"),
    [
        (
            ["run", "nothing"],
            {},
            2,
            ["No contract found for the stream 'nothing'", "in this folder: clickstream, events, sensors"],
        ),
        (["run", "events", "--trigger", "soon"], {}, 2, ["--trigger: expected a duration, got 'soon'", "5 seconds"]),
        (["run", "events", "--data-source", "s3"], {}, 2, ["does not match the landing zone", "LAKE_LANDING"]),
        (["run", "events"], {"LAKE_LANDING": "ftp://there"}, 2, ["is not a file:// or s3:// address"]),
        (
            ["run", "events"],
            {"LAKE_DRIVER_MEMORY": "2g", "LAKE_JARS": "/nowhere"},
            3,
            ["No jars found", "lakeproof setup"],
        ),
        (["run", "events"], {"LAKE_SPARK_UI_PORT": "x"}, 2, ["LAKE_SPARK_UI_PORT"]),
        (
            ["run", "events"],
            {"LAKE_SPARK_MASTER": "spark://a:1"},
            2,
            ["which do not see LAKE_LANDING", "LAKE_SPARK_SHARED"],
        ),
        (
            ["run", "events", "--data-source", "kafka"],
            {"LAKE_SPARK_MASTER": "spark://a:1"},
            2,
            ["which do not see LAKE_CHECKPOINTS", "LAKE_WAREHOUSE"],
        ),
        (
            ["run", "dedupe", "--parquet", "/o"],
            {"LAKE_SPARK_MASTER": "spark://a:1"},
            2,
            ["do not see parquet (/o), aside"],
        ),
        (
            ["run", "events", "--to", "gold"],
            {"LAKE_GOLD": "/no"},
            2,
            ["No data product in /no reads events", "--to silver"],
        ),
    ],
)
def test_a_mistake_is_one_clear_line(
    lake_settings: Settings, arguments: list[str], changes: dict[str, str], exit_code: int, words: list[str]
) -> None:
    result = consumer(lake_settings, *arguments, **changes)
    assert result.returncode == exit_code, result.stderr
    assert "Traceback" not in result.stderr
    for text in words:
        assert text in " ".join(result.stderr.split())
    assert failure(result.stderr)["retryable"] == (exit_code == 3)


@pytest.mark.parametrize(
    ("old", "new", "arguments", "words"),
    [
        ("        primaryKey: true\n        primaryKeyPosition: 1\n", "", ("--to", "silver"), "events has no silver"),
    ],
    ids=["no key"],
)
def test_silver_that_cannot_be_filled_is_refused(
    lake_settings: Settings, tmp_path: Path, old: str, new: str, arguments: tuple[str, ...], words: str
) -> None:
    text = (lake_settings.contracts / "events.yaml").read_text()
    assert old in text
    (tmp_path / "events.yaml").write_text(text.replace(old, new, 1))
    result = consumer(lake_settings, "run", "events", *arguments, LAKE_CONTRACTS=str(tmp_path))
    assert result.returncode == 2, result.stderr
    assert words in " ".join(result.stderr.split())
    assert "--to bronze" in result.stderr


def test_an_empty_condition_is_not_that_all_dead_letters_are_replayed(lake_settings: Settings) -> None:
    result = consumer(lake_settings, "replay", "events", "--where", "")
    assert result.returncode == 2
    assert failure(result.stderr)["message"] == "--where: expected a condition, got ''."


def test_a_certificate_that_cannot_be_written_is_refused_first(lake_settings: Settings) -> None:
    condition = ("--where", "user_id = 'u1'")
    result = consumer(lake_settings, "erase", "events", *condition, "--certificate", "/no/erased.json")
    assert (result.returncode, result.stderr.partition(".json")[0]) == (1, "Error: '/no/erased")


@pytest.mark.all
@pytest.mark.spark
def test_a_wrong_condition_is_one_error_without_a_stack_trace(lake_settings: Settings, drain: Drain) -> None:
    land(lake_settings, 1, 1)
    drain(lake_settings)
    result = consumer(lake_settings, "replay", "events", "--dry-run", "--where", "nope = 1")
    assert result.returncode == 2, result.stderr
    assert "`nope` cannot be resolved" in str(failure(result.stderr)["message"])
    assert "_contract_version" in str(failure(result.stderr)["hint"])
    assert "QueryContextLogger" not in result.stderr
    assert "org.apache.spark" not in result.stderr


def test_help_names_every_option(lake_settings: Settings) -> None:
    text = consumer(lake_settings, "run", "--help", COLUMNS="120").stdout
    assert all(option in text for option in ("--data-source", "--available-now", "--trigger"))
