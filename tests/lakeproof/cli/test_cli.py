import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.programs import forked
from tests.selection import only_with_all

from lakeproof.settings.help import by_group, settings_in_words

ROOT = Path(__file__).parents[3]


@pytest.fixture
def lakeproof(tmp_path):
    def call(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        own = {"LAKE_HOME": str(tmp_path / "lake"), "LAKE_SPARK_UI_PORT": "0"}
        return subprocess.run(
            [*forked("lakeproof"), *arguments],
            cwd=ROOT,
            env=os.environ | own | environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return call


def test_the_doctor_says_that_all_is_well(lakeproof):
    done = lakeproof("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed" not in done.stdout
    assert "Java" in done.stdout


def test_the_doctor_says_everything_that_is_not(lakeproof, tmp_path):
    done = lakeproof("doctor", LAKE_JARS=str(tmp_path), LAKE_CONTRACTS=str(tmp_path))
    assert done.returncode == 1
    assert done.stdout.count("failed") == 2
    assert "lakeproof setup" in done.stdout
    assert "Traceback" not in done.stderr


def test_the_doctor_looks_at_one_program(lakeproof, tmp_path):
    done = lakeproof("doctor", "--for", "producer", LAKE_JARS=str(tmp_path))
    assert done.returncode == 0
    assert "jars" not in done.stdout


def test_settings_for_people_and_for_scripts(lakeproof, tmp_path):
    secrets = {"LAKE_CATALOG_URI": "postgresql://me:hush@db/lake", "AWS_SECRET_ACCESS_KEY": "hush"}
    table = lakeproof("settings", AWS_ACCESS_KEY_ID="key", **secrets)
    assert table.returncode == 0
    assert "postgresql://me:***@db/lake" in table.stdout
    assert "hush" not in table.stdout
    shown = [line.strip() for line in table.stdout.splitlines()[1:]]
    for group, settings in by_group():
        assert shown.pop(0) == group
        assert [shown.pop(0).split()[0] for _ in settings] == [setting.variable for setting in settings]
    assert shown == []
    assert lakeproof("settings", "home", "LAKE_CATALOG").stdout.splitlines() == [str(tmp_path / "lake"), "sql"]


def test_help_says_what_every_setting_is(lakeproof):
    told = " ".join(lakeproof("settings", "--help").stdout.split())
    for setting in settings_in_words():
        assert f"{setting.variable}: {setting.meaning}" in told


def test_a_mistake_is_one_line_and_a_hint(lakeproof):
    for arguments, environment in (
        (["settings", "hom"], {}),
        (["doctor"], {"LAKE_CATALOG": "hive"}),
    ):
        done = lakeproof(*arguments, **environment)
        assert done.returncode == 2
        assert done.stderr.startswith("Error: ")
        assert len(done.stderr.splitlines()) == 2


CONTRACTS = sorted((ROOT / "contracts").glob("*.yaml"))
EVENTS = (ROOT / "contracts" / "events.yaml").read_text()


def test_every_contract_that_is_shipped_is_good(lakeproof):
    assert {path.stem for path in CONTRACTS} >= {"events", "clickstream", "sensors"}
    for arguments in ([], [path.stem for path in CONTRACTS], [str(path) for path in CONTRACTS]):
        done = lakeproof("contract", "check", *arguments)
        assert done.returncode == 0, done.stderr
        assert [line.split(": ")[1] for line in done.stdout.splitlines()] == ["ok"] * len(CONTRACTS)


def test_a_bad_contract_is_refused_with_line_and_field(lakeproof, tmp_path):
    bad = tmp_path / "events.yaml"
    bad.write_text(EVENTS.replace("name: product_id", "name: _product"))
    line = EVENTS[: EVENTS.index("name: product_id")].count("\n") + 1
    for arguments, named in ((["events"], str(bad)), ([str(bad)], str(bad)), ([], str(bad))):
        done = lakeproof("contract", "check", *arguments, LAKE_CONTRACTS=str(tmp_path))
        assert done.returncode == 2
        assert done.stderr.startswith(f"Error: {named}:{line}:15: _product: '_product' is not a valid name for a")
        assert len(done.stderr.splitlines()) == 4
    together = lakeproof("contract", "check", str(bad), "sensors", "nothing")
    assert together.returncode == 2
    assert "sensors: ok" in together.stdout
    assert together.stderr.count("Error: ") == 2


def test_a_contract_that_is_not_there(lakeproof, tmp_path):
    for command in (
        ["check", "nothing"],
        ["check", "nothing.yaml"],
        ["json-schema", "no/thing"],
        ["diff", "events", "a"],
    ):
        done = lakeproof("contract", *command)
        assert done.returncode == 2
        assert done.stderr.startswith("Error: ")
        assert len(done.stderr.splitlines()) == 2
    assert lakeproof("contract", "check", LAKE_CONTRACTS=str(tmp_path)).returncode == 2


@pytest.mark.parametrize(
    ("old", "new", "code", "says"),
    [
        only_with_all("status: active", "status: draft", 0, "No changes that affect readers"),
        only_with_all("What happened.", "What it was.", 0, "full:"),
        ("- value: purchase", "- value: purchase\n          - value: search", 10, "backward:"),
        only_with_all("          - value: purchase\n", "", 11, "forward:"),
        ("name: user_id", "name: visitor", 12, "breaking:"),
        only_with_all("primaryKey: true", "primaryKey: perhaps", 2, ""),
    ],
)
def test_the_exit_code_says_what_a_change_means(lakeproof, tmp_path, old, new, code, says):
    changed = tmp_path / "changed.yaml"
    changed.write_text(EVENTS.replace(old, new))
    done = lakeproof("contract", "diff", "events", str(changed))
    assert done.returncode == code, done.stdout + done.stderr
    assert says in done.stdout
    assert ("Increase it:" in done.stdout) == (code >= 10)
    told = lakeproof("contract", "diff", "--help").stdout
    assert f" {code} " in " ".join(told.split())


def test_the_json_schema_of_a_contract(lakeproof):
    done = lakeproof("contract", "json-schema", "clickstream")
    assert done.returncode == 0
    schema = json.loads(done.stdout)
    assert schema["properties"]["event"]["properties"]["position"] == {
        "type": ["integer", "null"],
        "minimum": 0,
        "maximum": 2**31 - 1,
        "description": "Place of the product in a list, counted from 0.",
    }


def test_a_contract_is_inferred_and_passes_the_check(lakeproof, tmp_path):
    (tmp_path / "sample.json").write_text('[{"id": "a", "at": "2026-11-21T12:30:00Z"}, {"id": "b"}, {}, 5]')
    own = {"LAKE_CONTRACTS": str(tmp_path / "new")}
    arguments = ("contract", "init", "orders", "--from", str(tmp_path / "sample.json"), "--key", "id")
    dry = lakeproof(*arguments, "--dry-run", **own)
    assert (dry.returncode, (tmp_path / "new").exists()) == (0, False)
    done = lakeproof(*arguments, **own)
    path = tmp_path / "new" / "orders.yaml"
    assert path.read_text() == dry.stdout
    assert done.stdout == (f"orders: wrote {path}: 2 fields from 3 records of 1 file, event time at, key id\n")
    assert done.stderr.splitlines() == [
        "Warning: no contract can accept sample.json: unit 3: not an object.",
        "Not certain:",
        "  at: chosen as the event time, but not every record has it.",
        "  id: not every record has this field of the key, so there is no silver.",
        "  there are only 3 records. A field is required if each of them has it.",
        f"Next: land files in {tmp_path}/lake/landing/orders, then run: consumer run orders --available-now",
    ]
    assert lakeproof("contract", "check", "orders", **own).returncode == 0
    again = lakeproof(*arguments, **own)
    assert (again.returncode, again.stderr.splitlines()[0]) == (2, f"Error: {path} exists.")
    for name in ("or-ders", "../x"):
        assert lakeproof("contract", "init", name, *arguments[3:], **own).returncode == 2
    for share in ("60%", "5", "-1%"):
        refused = lakeproof("contract", "init", "other", *arguments[3:], f"--tolerate={share}", **own)
        assert (refused.returncode, "expected a share below 50%" in refused.stderr) == (2, True)


def test_deprecated_fields_are_told(lakeproof, tmp_path):
    text = EVENTS.replace("- name: product_id\n", "- name: product_id\n        deprecated: true\n")
    rule = "    quality:\n      - {type: sql, name: has_product, query: product_id IS NOT NULL}\n"
    (tmp_path / "events.yaml").write_text(text + rule)
    done = lakeproof("contract", "check", "events", LAKE_CONTRACTS=str(tmp_path))
    assert done.returncode == 0
    assert done.stdout.endswith(", deprecated product_id\n")
    assert done.stderr == "Warning: events: the rule has_product uses product_id, which is deprecated.\n"
