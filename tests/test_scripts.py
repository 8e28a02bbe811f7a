"""The scripts of a clone, copied to a folder of their own, with other programs on the PATH."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "deploy", tmp_path / "clone" / "deploy", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "clone"


def run(clone: Path, script: str, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PATH": f"{clone.parent / 'bin'}:{os.environ['PATH']}"} | variables
    return subprocess.run(
        ["bash", clone / "deploy" / script, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )


def add_program(clone: Path, name: str, text: str) -> None:
    """Add a shell script to the PATH of the scripts."""
    _write(clone.parent / "bin" / name, text)


def add_to_venv(clone: Path, name: str, text: str) -> None:
    """Add a shell script to the clone's .venv."""
    _write(clone / ".venv" / "bin" / name, text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "refused"), [("1.8.0_402", True), ("17.0.15", False), ("22.0.2", False), ("25.0.1", True)]
)
def test_the_setup_requires_a_java_on_which_spark_runs(clone: Path, version: str, refused: bool) -> None:
    add_program(clone, "java", f"echo 'openjdk version \"{version}\" 2020-01-01' >&2")
    # Without Python, nothing is installed.
    done = run(clone, "setup.sh", JAVA_HOME="", PYTHON="none")
    assert done.returncode == 1
    assert ("Spark runs on Java 17 to 22" in done.stderr) == refused
    assert ("No Python" in done.stderr) != refused


@pytest.mark.parametrize(
    ("port_of_demo", "runs", "answering", "said"),
    [
        ("40123", True, "40123", "The page is served at http://127.0.0.1:40123/ already.\n"),
        ("40123", True, "", "reader page --serve\n"),
        ("40123", False, "40123", "reader page --serve\n"),  # the demo was killed; 40123 is another lake's
        (None, True, "8282", "reader page --serve\n"),
    ],
)
def test_the_page_of_this_lake_is_opened(
    clone: Path, port_of_demo: str | None, runs: bool, answering: str, said: str
) -> None:
    home = clone.parent / "a lake"
    (home / ".demo").mkdir(parents=True)
    if port_of_demo:
        (home / ".demo" / "page").write_text(port_of_demo)
    (home / ".demo" / "supervisord.pid").write_text(str(os.getpid()) if runs else "4194305")  # beyond all ids
    add_program(clone, "docker", "exit 1")
    add_program(clone, "xdg-open", "exit 0")
    ports = "|".join(f"*:{port}/version" for port in answering.split())
    add_program(clone, "curl", f'case "$*" in {ports or "none"}) printf 200 ;; *) exit 7 ;; esac')
    (clone / "deploy" / "setup.sh").write_text("#!/bin/sh\n")
    add_to_venv(clone, "lakeproof", f"echo '{home}'")
    add_to_venv(clone, "reader", 'echo reader "$@"')
    done = run(clone, "demo/page.sh")
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


SERVICES = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]


def add_docker(clone: Path, *running: str, stopped: str = "") -> Path:
    """Add a Docker engine with containers of some services; return the log of its commands, with their profiles."""
    log = clone.parent / "docker.log"
    names = "|".join(f'*" {name}"' for name in running) or "none"
    add_program(
        clone,
        "docker",
        f"""echo "$COMPOSE_PROFILES: $*" >>'{log}'
case "$*" in
*" ps --all --quiet"{f' | *" ps --all --quiet {stopped}"' if stopped else ""}) echo id ;;
*" ps "*) case "$*" in {names}) echo id ;; esac ;;
esac""",
    )
    return log


def test_stopping_and_cleaning_leave_no_program_and_no_profile_out(clone: Path) -> None:
    log = add_docker(clone)
    profiles = {profile for service in SERVICES.values() for profile in service.get("profiles", [])}
    for script, command in (("stop", " stop "), ("clean", " down ")):
        done = run(clone, f"demo/{script}.sh")
        assert done.returncode == 0, done.stderr
        (line,) = [line for line in log.read_text().splitlines() if command in line]
        of, _, words = line.partition(": compose ")
        assert {*of.split(",")} == profiles - {"tools"}
        if script == "stop":
            assert {*words.split()[1:]} == {
                name for name in SERVICES if name.startswith(("producer", "consumer", "coll"))
            }


def test_cleaning_also_removes_a_local_lake_and_needs_something_to_clean(clone: Path) -> None:
    add_program(clone, "docker", "exit 1")
    assert "No .venv found" in run(clone, "demo/clean.sh").stderr
    add_docker(clone)
    add_to_venv(clone, "lakeproof", 'echo lakeproof "$@"')
    assert run(clone, "demo/clean.sh").stdout == "lakeproof demo clean\n"


@pytest.mark.parametrize("local", [True, False])
def test_local_processes_are_stopped_beside_containers(clone: Path, local: bool) -> None:
    add_docker(clone)
    (clone.parent / "lake").mkdir()
    if local:
        (clone.parent / "lake" / ".demo").symlink_to("anywhere")
    add_to_venv(clone, "lakeproof", f"[ $1 = demo ] && echo lakeproof \"$@\" || echo '{clone.parent / 'lake'}'")
    assert ("lakeproof demo stop" in run(clone, "demo/stop.sh").stdout) == local


def test_the_log_of_a_program_is_that_of_its_running_container(clone: Path) -> None:
    log = add_docker(clone, "consumer-sensors", stopped="producer-clickstream")
    for program, service in (("consumer", "consumer-sensors"), ("producer", "producer-clickstream")):
        assert run(clone, "demo/logs.sh", program).returncode == 0
        assert log.read_text().splitlines()[-1].endswith(f" logs --follow --tail 50 {service}")
    add_program(clone, "docker", "exit 1")
    assert "No log of the consumer found" in run(clone, "demo/logs.sh", "consumer").stderr


def test_the_page_of_spark_is_found_without_an_environment(clone: Path) -> None:
    add_program(clone, "xdg-open", "exit 0")
    add_program(clone, "curl", """case "$*" in *:4041/*) echo '{"name": "lakeproof consumer"}' ;; *) exit 7 ;; esac""")
    assert run(clone, "demo/spark.sh").stdout == "The consumer's Spark UI: http://127.0.0.1:4041\n"
