"""`lakeproof contract try`, and the questions of `lakeproof contract apply` on a terminal."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from tests.lakeproof.whatif.lakes import Lake
from tests.lakeproof.whatif.test_forecast import ENUM, batch, changed, contract_text
from tests.lakes import embedded, undone
from tests.programs import forked
from tests.selection import only_with_all

from consumer.sources.envelope import Envelope
from lakeproof.settings import Settings

NARROWER = ("enum: [a, b]", "enum: [b]")


@pytest.fixture(scope="module")
def lasting_lake(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("try")
    made = Lake(embedded(folder / "lake"), folder, contract_text())
    made.apply()
    made.land(batch({}, {"kind": "c"}))
    return made.settings


@pytest.fixture
def lake(lasting_lake: Settings, tmp_path: Path) -> Iterator[Lake]:
    """A lake with a row of bronze, and a dead letter due to a missing value in an enum."""
    with undone(lasting_lake):
        yield Lake(lasting_lake, tmp_path, contract_text(), micro_batch=1)


def environment(lake: Lake) -> dict[str, str]:
    own = {"LAKE_HOME": str(lake.settings.home), "LAKE_CONTRACTS": str(lake.settings.contracts)}
    return os.environ | own | {"PYTHONPATH": os.pathsep.join(sys.path)}


def lakeproof(lake: Lake, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [*forked("lakeproof"), "contract", *arguments]
    return subprocess.run(command, env=environment(lake), capture_output=True, text=True, timeout=120)


def try_text(lake: Lake, text: str, *options: str) -> "subprocess.CompletedProcess[str]":
    path = lake.path.with_name("new.yaml")
    path.write_text(text)
    return lakeproof(lake, "try", lake.stream, "--with", str(path), *options)


def files_of(lake: Lake) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in lake.settings.home.rglob("*") if path.is_file()}


def test_it_says_what_would_change_and_changes_nothing(lake: Lake) -> None:
    before = files_of(lake)
    done = try_text(lake, changed(ENUM))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "orders: 1 row of bronze and 1 open dead letter judged by 2.0.0."
    assert 'not_allowed  1      batch-001-000.json [1] $.kind "c" is not an allowed value' in done.stdout
    assert done.stdout.splitlines()[-1] == (
        "1 dead letter would go to bronze: apply the contract, then run `consumer replay orders`."
    )
    assert files_of(lake) == before


def test_its_exit_code_says_whether_rows_of_bronze_would_be_dead_letters(lake: Lake) -> None:
    done = try_text(lake, changed(NARROWER))
    assert done.returncode == 13
    assert "1 row of bronze would be a dead letter. What is in bronze stays there" in done.stdout


def test_its_json_has_all_of_it(lake: Lake) -> None:
    lake.land(b"[{", Envelope(None, "gone.json", None, ("batch_too_large", "too large")), day=1)
    done = try_text(lake, changed(NARROWER), "--format", "json", "--all")
    found = json.loads(done.stdout)
    assert (found["stream"], found["version"], found["split"]) == ("orders", "2.0.0", {"bronze": 0, "dead_letters": {}})
    assert found["bronze"] == {"rows": 1, "sampled": False, "judged": 1}
    assert [(each["change"], each["reasons"], each["new_reasons"], each["units"]) for each in found["changes"]] == [
        ("to_dead_letters", None, "not_allowed", 1),
        ("stays", "corrupt_batch", "corrupt_batch", 1),
        ("stays", "not_allowed", "not_allowed", 1),
        ("not_judged", "batch_too_large", "batch_too_large", 1),
    ]
    (example,) = found["changes"][0]["examples"]
    assert example == {
        "source": "batch-001-000.json",
        "position": 0,
        "path": "$.kind",
        "detail": '"a" is not an allowed value',
    }
    assert [(each["day"], each["to_dead_letters"], each["not_judged"]) for each in found["days"]] == [
        ("2026-11-21", 1, 0),
        ("2026-11-22", 0, 0),
        (None, 0, 1),
    ]


def test_a_sample_is_said_to_be_one(lake: Lake) -> None:
    lake.land(batch(*({},) * 50))
    done = try_text(lake, changed(NARROWER), "--sample", "10")
    assert "10 rows of bronze (a sample of 51) and 1 open dead letter judged" in done.stdout
    assert "evenly spaced" in done.stdout
    assert "51" in done.stdout.splitlines()[3]
    assert done.stdout == try_text(lake, changed(NARROWER), "--sample", "10").stdout


@pytest.mark.all
def test_control_characters_of_a_record_do_not_reach_the_terminal(lake: Lake) -> None:
    lake.land(Envelope(batch({"kind": "\x1b[2J", "ok": "\x1b[1m"}), "\x1b[0m[red].json", None))
    done = try_text(lake, changed((", enum: [a, b]", "")))
    assert "not_allowed+wrong_type → wrong_type" in done.stdout
    assert "\x1b" not in done.stdout
    assert "[red]" in done.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        only_with_all("not: [a contract", "new.yaml:1:"),
        only_with_all(contract_text().replace("name: orders", "name: other"), "is the contract of 'orders'"),
        only_with_all(changed(("physicalType: int}", "physicalType: string}")), "new.yaml:"),
        (
            changed(("{name: count, logicalType: integer, physicalType: int}", "{name: count, logicalType: string}")),
            "Cannot change the tables of orders from contract 1.0.0 to 2.0.0: count: type changed: int → string",
        ),
        only_with_all(changed(ENUM, version="1.0.0"), "but version 1.0.0 was applied before"),
        only_with_all(changed(more="      - {name: n, logicalType: string, required: true}\n"), "required field added"),
    ],
    ids=[
        "no YAML",
        "another stream",
        "no contract",
        "a type that cannot change",
        "the same version",
        "a required field",
    ],
)
def test_a_contract_that_cannot_be_applied_is_refused(lake: Lake, text: str, said: str) -> None:
    done = try_text(lake, text)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_mistakes_on_the_command_line(lake: Lake) -> None:
    for arguments, said in (
        (("orders", "--with", "nowhere.yaml"), "nowhere.yaml: No such file or directory."),
        (("orders", "--with", "/"), "/: Is a directory."),
        (("orders", "--sample", "1", "--all"), "exclude each other"),
        (("orders", "--sample", "0"), "--sample"),
        (("nothing",), "No contract found for the stream 'nothing'"),
    ):
        done = lakeproof(lake, "try", *arguments)
        assert done.returncode == 2, arguments
        assert said in done.stderr


@pytest.mark.all
def test_before_anything_has_landed(lake_settings: Settings, tmp_path: Path) -> None:
    lake = Lake(lake_settings, tmp_path, contract_text())
    for _ in range(2):
        done = lakeproof(lake, "try", "orders")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[-1] == "Nothing has landed of orders."
        lake.apply()
    lake.path.unlink()
    path = tmp_path / "elsewhere.yaml"
    path.write_text(contract_text())
    assert lakeproof(lake, "try", "orders", "--with", str(path)).returncode == 0


@pytest.mark.all
def test_tables_that_were_lost_are_named(lake: Lake) -> None:
    lake.catalog.drop_table("dead_letters.orders")
    done = lakeproof(lake, "try", "orders")
    assert done.returncode == 1
    assert "The table dead_letters.orders does not exist, but ledger.orders has rows" in done.stderr


class Terminal:
    """`lakeproof contract apply orders` on a terminal."""

    def __init__(self, lake: Lake, *options: str) -> None:
        command = [*forked("lakeproof"), "contract", "apply", "orders", *options]
        self.process: pexpect.spawn[str] = pexpect.spawn(
            command[0], command[1:], env=environment(lake) | {"TERM": "xterm"}, encoding="utf-8", timeout=60
        )
        self.process.setwinsize(50, 160)

    def end(self) -> tuple[str, int | None]:
        self.process.expect(pexpect.EOF)
        self.process.wait()
        return self.process.before or "", self.process.exitstatus


def version(lake: Lake) -> str:
    return lakeproof(lake, "apply", "orders", "--dry-run").stdout


def test_apply_shows_a_forecast_on_a_terminal_and_asks(lake: Lake) -> None:
    lake.path.write_text(changed(ENUM))
    for answer in ("n", "\x04"):
        terminal = Terminal(lake)
        terminal.process.expect("1 dead letter would go to bronze")
        terminal.process.expect(r"Apply contract 2\.0\.0 to orders\? \[y/N\]")
        terminal.process.sendline(answer) if answer == "n" else terminal.process.send(answer)
        assert terminal.end()[1] == 1
        assert "would be applied" in version(lake)
    terminal = Terminal(lake)
    terminal.process.expect("y/N")
    terminal.process.sendline("y")
    said, code = terminal.end()
    assert code == 0, said
    assert "orders: 1.0.0 → 2.0.0 applied." in said
    assert "already applied" in Terminal(lake).end()[0]


@pytest.mark.all
def test_apply_does_not_ask_with_yes_or_in_a_dry_run(lake: Lake) -> None:
    lake.path.write_text(changed(ENUM))
    said, code = Terminal(lake, "--dry-run").end()
    assert code == 0
    assert "would go to bronze" in said
    assert "would be applied" in said
    said, code = Terminal(lake, "--yes").end()
    assert code == 0
    assert "would go to bronze" in said
    assert "2.0.0 applied" in said


def test_apply_without_a_terminal_neither_shows_nor_asks(lake: Lake) -> None:
    lake.path.write_text(changed(ENUM))
    done = lakeproof(lake, "apply", "orders")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "orders: 1.0.0 → 2.0.0 applied."


@pytest.mark.all
def test_apply_asks_without_a_forecast_that_fails(lake: Lake) -> None:
    lake.path.write_text(changed(ENUM))
    lake.catalog.drop_table("dead_letters.orders")
    terminal = Terminal(lake)
    terminal.process.expect("what would change is not known")
    terminal.process.expect("y/N")
    terminal.process.sendline("y")
    assert terminal.end()[1] == 0


@pytest.mark.all
def test_a_contract_that_changes_while_apply_asks_is_not_applied(lake: Lake) -> None:
    lake.path.write_text(changed(ENUM))
    terminal = Terminal(lake)
    terminal.process.expect("y/N")
    lake.path.write_text(changed(ENUM, version="3.0.0"))
    terminal.process.sendline("y")
    said, code = terminal.end()
    assert code == 2
    assert "have changed meanwhile" in said
