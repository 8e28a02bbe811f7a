"""The project around the programs: pinned dependencies and start files are consistent."""

import ast
import hashlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from configparser import RawConfigParser
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from grimp import build_graph
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from tests.pages import blocks

from lakeproof.demo.streams import DemoStream, arguments

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
INSTALL = ROOT / "src" / "lakeproof" / "install"
CRATE = ROOT / "src" / "native-judge"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
REQUIREMENTS = ROOT / "deploy" / "requirements"
PINNED = sorted(REQUIREMENTS.glob("*.txt"))
PROGRAMS = ("producer", "collector", "consumer", "reader")
EXTRAS_OF = {
    "producer": ["producer"],
    "collector": ["collector"],
    "consumer": ["consumer"],
    "reader": ["reader"],
    "run": ["producer", "collector", "consumer", "reader", "page", "demo"],
    "all": ["producer", "collector", "consumer", "reader", "plot", "page", "lineage", "demo"],
    "docs": ["docs"],
    "bench": ["producer", "collector", "consumer", "reader", "bench"],
    "dev": ["producer", "collector", "consumer", "reader", "plot", "page", "lineage", "demo", "docs", "dev"],
}


def check(*command: str | Path) -> None:
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def pinned(path: Path) -> dict[str, str]:
    """Return names and versions in a requirements file."""
    found = re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", path.read_text(), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


@pytest.mark.parametrize("path", PINNED, ids=lambda path: path.stem)
def test_requirements_are_pinned_by_hash_and_name_no_index(path):
    text = path.read_text()
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text
    for block in re.split(r"\n(?=[a-z0-9])", text[text.index("\n\n") if text.startswith("\n\n") else 0 :], flags=re.I):
        if "==" in block.splitlines()[0]:
            assert "--hash=sha256:" in block, block


def test_requirements_have_one_version_of_a_package():
    everything = pinned(REQUIREMENTS / "bench.txt") | pinned(REQUIREMENTS / "dev.txt")
    everything |= pinned(REQUIREMENTS / "native.txt") | pinned(REQUIREMENTS / "release.txt")  # in folders of their own
    for path in PINNED:
        assert pinned(path).items() <= everything.items(), path


@pytest.mark.parametrize("name", EXTRAS_OF)
def test_requirements_are_those_of_pyproject(name):
    """Every declared dependency is pinned to a version that its declaration accepts; else: `make requirements`."""
    have = pinned(REQUIREMENTS / f"{name}.txt")
    for text in PROJECT["dependencies"] + [item for extra in EXTRAS_OF[name] for item in EXTRAS[extra]]:
        wanted = Requirement(text)
        assert have[canonicalize_name(wanted.name)] in wanted.specifier, text


def test_the_native_judge_has_the_version_of_the_project():
    """A consumer uses only a native judge of its own version: see `lakeproof.install.judges`."""
    read = {name: tomllib.loads((CRATE / name).read_text()) for name in ("Cargo.toml", "crates.lock", "pyproject.toml")}
    locked = [each["version"] for each in read["crates.lock"]["package"] if each["name"] == "native_judge"]
    versions = [read["Cargo.toml"]["package"]["version"], read["pyproject.toml"]["project"]["version"], *locked]
    assert versions == [PROJECT["version"]] * 3


def test_producer_and_collector_need_no_spark_and_the_reader_no_jvm():
    for program in ("producer", "collector"):
        assert not pinned(REQUIREMENTS / f"{program}.txt").keys() & {"pyspark", "duckdb", "pyarrow"}
    assert "pyspark" not in pinned(REQUIREMENTS / "reader.txt")


def test_jars_are_those_that_were_recorded_and_at_most_150_mb():
    folder = ROOT / "target" / "jars" / "spark"
    recorded = dict(reversed(line.split()) for line in (INSTALL / "jars.sha256").read_text().splitlines())
    jars = {f"./{jar.name}": jar for jar in folder.glob("*.jar")}
    assert jars.keys() == recorded.keys()
    for name, jar in jars.items():
        assert hashlib.sha256(jar.read_bytes()).hexdigest() == recorded[name], name
    assert sum(jar.stat().st_size for jar in jars.values()) <= 150_000_000
    modules = [re.sub(r"-\d[^/]*$", "", name) for name in jars]
    assert len(set(modules)) == len(modules)  # no module has two versions
    assert not [name for name in jars if "bundle" in name]


@pytest.mark.parametrize("name", ["rest", "kafka"])
def test_the_jars_of_the_tests_are_those_that_were_recorded(name):
    folder = ROOT / "target" / "jars" / name
    listed = INSTALL / "kafka.sha256" if name == "kafka" else ROOT / "tests" / "jars" / f"{name}.sha256"
    recorded = dict(reversed(line.split()) for line in listed.read_text().splitlines())
    found = {f"./{jar.name}": hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.glob("*.jar")}
    assert found == recorded


def test_jars_are_recorded_without_asking_for_those_recorded_before():
    command = ["make", "--dry-run", "--no-print-directory", "jars-lock"]
    steps = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert steps.stdout.splitlines() == ["deploy/setup.sh lock"]


def test_ivy_settings_name_no_host():
    assert "://" not in (INSTALL / "ivysettings.xml").read_text()


def test_the_dockerfile_lints():
    check(BIN / "hadolint", "--failure-threshold", "info", "deploy/Dockerfile")


def test_the_compose_file_is_one():
    check(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", "docker-compose.yml")


def test_the_compose_file_of_init_has_the_demos_minio():
    check(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", INSTALL / "template" / "compose.yaml")
    services = yaml.safe_load((INSTALL / "template" / "compose.yaml").read_text())["services"]
    for name, service in services.items():
        assert service == {key: value for key, value in COMPOSE["services"][name].items() if key != "logging"}


def test_the_settings_of_init_are_settings(tmp_path):
    from lakeproof.settings import settings_of

    text = (INSTALL / "template" / "env").read_text()
    lines = [line.removeprefix("#") for line in text.splitlines() if re.match(r"#?[A-Z_]+=", line)]
    settings = settings_of(dict(line.split("=", 1) for line in lines))
    assert (settings.home, settings.landing.uri) == (Path("lake"), "s3://landing")


def consumers_started() -> dict[str, list[str]]:
    """Return the commands that start a consumer, by file or service."""
    (unit,) = (ROOT / "deploy" / "systemd").glob("lakeproof-consumer@*.service")
    commands = {unit.name: re.search(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)[1].split()}
    commands |= {name: service["command"] for name, service in COMPOSE["services"].items() if "command" in service}
    for document in yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "consumer.yaml").read_text()):
        containers = document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
        commands |= {f"Kubernetes: {each['name']}": each.get("command", []) for each in containers}
    return {name: words for name, words in commands.items() if words and Path(words[0]).name == "consumer"}


def test_every_consumer_that_stays_maintains_its_tables():
    """Without `--maintain`, snapshots never expire, and the retention of a contract never applies."""
    commands = consumers_started()
    assert len(commands) == 6
    for name, words in commands.items():
        assert "--maintain" in words, name


def test_the_page_about_deployment_keeps_the_password_out_of_git():
    tracked = subprocess.run(["git", "ls-files", ".env"], cwd=ROOT, capture_output=True, text=True, check=True)
    page = (ROOT / "docs" / "operations" / "deploy.md").read_text()
    assert not tracked.stdout or "--env-file FILE" in page


def test_compose_itself_loads_the_file():
    loader = ROOT / "target" / "bin" / "compose-go"
    assert loader.is_file(), "run `make setup-test`"
    done = subprocess.run([loader, "docker-compose.yml"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    assert services["consumer"]["environment"]["SPARK_LOCAL_IP"] == "consumer"
    assert services["consumer"]["environment"]["LAKE_WAREHOUSE"] == "s3://warehouse"
    of_kafka = {name for name, service in services.items() if service.get("profiles") == ["kafka"]}
    assert of_kafka == {"kafka", "topic", "kafka-ui"}
    needed = {name for name, need in services["consumer"]["depends_on"].items() if need["required"]}
    assert services["consumer"]["depends_on"].keys() - needed == {"kafka", "topic"}  # which belong to a profile
    assert "DEMO_SOURCE=s3" in (ROOT / ".env").read_text().splitlines()
    assert services["buckets"]["command"][0].count("$MINIO_ROOT") == 2  # left to the shell in the container


def test_images_are_pinned():
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", dockerfile, re.MULTILINE))
    images = set(re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)) - stages
    images |= {service["image"] for service in COMPOSE["services"].values() if "image" in service}
    assert images
    for image in images:
        assert re.search(r":[^:]*(\d{2}|\d\.\d\.\d)", image), image
        assert not image.endswith("latest")


def test_the_compiler_that_the_native_judge_needs_is_that_of_image_and_pages():
    wanted = tomllib.loads((CRATE / "Cargo.toml").read_text())["package"]["rust-version"]
    (has,) = re.findall(r"^FROM rust:([\d.]+)", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    assert Version(has) >= Version(wanted)
    for page in ("README.md", "docs/install.md"):
        assert re.findall(r"Rust (\d[\d.]*\d)", (ROOT / page).read_text()) == [wanted], page


def test_compose_refers_to_what_there_is():
    services, volumes = COMPOSE["services"], COMPOSE["volumes"]
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE))
    variables = set(re.findall(r"(?<!\$)\$\{(\w+)", (ROOT / "docker-compose.yml").read_text()))
    assert variables <= {line.split("=")[0] for line in (ROOT / ".env").read_text().splitlines()}
    for name, service in services.items():
        assert set(service.get("depends_on", {})) <= services.keys(), name
        assert {volume.split(":")[0] for volume in service.get("volumes", [])} <= volumes.keys(), name
        if "build" in service:
            assert service["build"]["target"] in stages, name
        # Demo passwords are public: only this machine may reach a port.
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name


@pytest.mark.parametrize(
    ("stream", "source"), [("events", "${DEMO_SOURCE}"), ("sensors", "${DEMO_SOURCE}"), ("clickstream", "kafka")]
)
def test_the_demo_is_the_same_with_and_without_containers(stream, source):
    config = RawConfigParser(inline_comment_prefixes=None)
    config.read(ROOT / "src" / "lakeproof" / "demo" / "supervisord.conf")
    given = arguments(DemoStream(stream), source)
    python = '"%(ENV_DEMO_PYTHON)s" -m '
    for program, own in (("producer", given.producer), ("consumer", given.consumer)):
        command = config[f"program:{program}"]["command"].replace(f"%(ENV_DEMO_{program.upper()})s", own)
        service = program if stream == "events" else f"{program}-{stream}"
        containers = list(COMPOSE["services"][service]["command"])
        if "--target" in containers:  # the collector's address inside containers
            at = containers.index("--target")
            del containers[at : at + 2]
        assert shlex.split(command.removeprefix(python)) == containers
    assert config["program:collector"]["command"] == f"{python}collector run"
    assert COMPOSE["services"]["collector"]["command"] == ["collector", "run"]


def test_the_compose_environment_is_read_by_the_programs(monkeypatch, tmp_path):
    from lakeproof.settings import VARIABLES, load_settings

    monkeypatch.chdir(tmp_path)
    environment = COMPOSE["services"]["consumer"]["environment"]
    for name, value in (COMPOSE["x-lake"] | environment).items():
        if name != "<<":
            monkeypatch.setenv(name, value)
    settings = load_settings()
    assert {name for name in COMPOSE["x-lake"] if name.startswith("LAKE_")} <= VARIABLES
    assert settings.landing.uri == "s3://landing"
    assert settings.state.checkpoints == "s3://checkpoints"
    assert settings.catalog.uri == "sqlite:////lake/catalog.db"
    assert settings.s3.endpoint_url == "http://minio:9000"


def test_the_defaults_of_env_leave_the_lake_embedded():
    names = {line.split("=")[0] for line in (ROOT / ".env").read_text().splitlines() if "=" in line and line[0] != "#"}
    assert {name for name in names if name.startswith(("AWS_", "LAKE_"))} == {"LAKE_JARS"}


def test_make_help_tells_of_every_target():
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    told = set(re.findall(r"^  make (\S+) +\S", done.stdout, re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert told == set(phony.split())
    assert subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout == done.stdout


def avoided() -> list[str]:
    """Return the phrases in the left column of "Do not write" in CONTRIBUTING.md."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| (.+?) \| .+ \|$", page.partition("| avoid | write |\n|---|---|\n")[2], re.MULTILINE)
    return [phrase for row in rows for phrase in row.split(", ")]


@pytest.mark.parametrize("phrase", avoided())
def test_texts_are_in_plain_english(phrase):
    """Messages, docs and docstrings avoid phrases for which CONTRIBUTING.md has a better one."""
    words = phrase.removeprefix("a string ").split()
    forms = {"is": "(is|are)", "stands": "stands?", "hand": "hands?"}
    pattern = re.compile(r"\b" + r"[\s#|]+".join(forms.get(word, re.escape(word)) for word in words) + r"\b", re.I)
    found = [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for path in [
            ROOT / "README.md",
            ROOT / "Makefile",
            *_texts("src", ".py"),
            *_texts("src", ".sh"),
            *_texts("deploy", ".sh"),
            *_texts("tests", ".sh"),
            *_texts("docs", ".md"),
        ]
        for text in [path.read_text()]
        for match in pattern.finditer(text)
    ]
    assert found == []


def test_there_are_phrases_to_avoid():
    assert len(avoided()) > 20


def _texts(folder: str, suffix: str) -> list[Path]:
    # Reports of benchmarks are results, and remain as measured.
    return [path for path in (ROOT / folder).rglob(f"*{suffix}") if "benchmarks" not in path.parts]


def test_scripts_can_be_run():
    folders = ("benchmarks", "deploy", "docs", "tests")
    scripts = [ROOT / ".ci" / "run", *(path for folder in folders for path in _texts(folder, ".sh"))]
    sourced = {"common.sh", "native.sh"}
    assert [path.name for path in scripts if path.name not in sourced and not os.access(path, os.X_OK)] == []


def test_ci_calls_the_tests_and_nothing_else():
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec make test ALL=1"
    readme = (ROOT / "README.md").read_text()
    assert "\n## Test\n```sh\nmake test\n```\n" in readme
    assert "`make test ALL=1`" in readme


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_issue_templates_are_valid(path):
    schema = "config" if path.stem == "config" else "forms"
    check(BIN / "check-jsonschema", "--builtin-schema", f"vendor.github-issue-{schema}", path)


@pytest.mark.parametrize("path", sorted((ROOT / "deploy" / "systemd").glob("*.service")), ids=lambda path: path.stem)
def test_systemd_runs_commands_that_exist_and_lets_them_end(path):
    unit = RawConfigParser(strict=False)
    unit.optionxform = str
    unit.read(path)
    service = unit["Service"]
    program, *arguments = shlex.split(service["ExecStart"].replace("%i", "events"))
    check(BIN / Path(program).name, *arguments, "--help")
    assert service["Restart"] == "on-failure"
    # A restart fixes neither an error in the settings nor a pause of the breaker.
    assert service["RestartPreventExitStatus"] == ("2 5" if "consumer" in path.stem else "2")
    if program.endswith("consumer"):
        assert service["KillMode"] == "mixed"  # Spark's JVM must not get the signal


@pytest.mark.parametrize(
    "path", ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
)
def test_no_page_installs_lakeproof_by_its_name(path):
    """The package index is asked for a name, also with --find-links, and anybody could register this one."""
    assert not re.findall(r"pip install .*[\"' ]lakeproof\b(?![-_.\w])", (ROOT / path).read_text(encoding="utf-8"))


def test_the_page_about_installing_says_that_nothing_is_released():
    unreleased = f"## [{PROJECT['version']}] - not released yet" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    said = f"Version {PROJECT['version']} is not released yet: until then, run `deploy/release.sh build`"
    assert (said in page) == unreleased


def test_the_page_about_deployment_names_what_exists():
    """Its commands need root and systemd: only names are checked, and test_wheel.py installs the same wheel."""
    (block,) = blocks("docs/operations/deploy.md", "text")
    wheel, extras = re.search(r'"([\w.-]+\.whl)\[([\w,]+)\]"', block).groups()
    assert wheel == f"{PROJECT['name']}-{PROJECT['version']}-py3-none-any.whl"
    assert set(extras.split(",")) <= set(EXTRAS)
    programs = {Path(program).name for program in re.findall(r"/opt/lakeproof/bin/(\w+) [a-z]", block)}
    commands = re.findall(r"/opt/lakeproof/bin/(lakeproof \w+)", block)
    assert programs == {"pip", "lakeproof"}
    assert commands == ["lakeproof init", "lakeproof setup"]
    for command in commands:
        check(BIN / "lakeproof", *command.split()[1:], "--help")
    (units,) = re.findall(r"^systemctl enable --now (.*)$", block, re.MULTILINE)
    for unit in units.split():
        name, template, _ = unit.partition("@")
        assert (ROOT / "deploy" / "systemd" / f"{name}{template}.service").exists(), unit


def test_pre_commit_is_valid():
    check(BIN / "pre-commit", "validate-config")


@pytest.mark.all
@pytest.mark.parametrize("program", PROJECT["scripts"])
def test_each_program_runs_as_a_script_and_as_a_module(program):
    for command in ([BIN / program, "--help"], [sys.executable, "-m", program, "--help"]):
        check(*command)


@pytest.mark.parametrize("program", ["lakeproof", "producer", "collector", "consumer", "reader"])
def test_what_a_program_imports_is_declared(program):
    """Otherwise, a package that only the developers' .venv has would be missing on a fresh machine."""
    distributions = packages_distributions()
    imported: set[str] = set()
    for path in (ROOT / "src" / program).rglob("*.py"):
        for node in _runtime_nodes(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    # What lakeproof imports beyond its own dependencies, it imports where a program needs it, which then declares it.
    extras = EXTRAS.get(program, [item for name in PROGRAMS for item in EXTRAS[name]])
    declared = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"] + extras}
    optional = {"reader": ["plot", "page"], "consumer": ["lineage"]}
    declared |= {canonicalize_name(name) for extra in optional.get(program, []) for name in EXTRAS[extra]}
    declared |= {"py4j", "botocore", "starlette", "requests"}  # parts of PySpark, boto3, FastAPI, PyIceberg
    declared |= {"lakeproof", *PROGRAMS}
    declared |= {"lakeproof-native-judge", "native-judge"}  # may be missing; then the name of the module is used
    for name in imported - sys.stdlib_module_names - {"lakeproof", program}:
        assert {canonicalize_name(each) for each in distributions.get(name, [name])} & declared, name


def _runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes except those under ``if TYPE_CHECKING``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from _runtime_nodes(node)


PRIVATE_ROOMS = {
    "consumer/iceberg": "tests/consumer/iceberg/test_contracts.py",
    "consumer/spark/cluster.py": "tests/consumer/spark/test_contracts.py",
    "consumer/spark/session.py": "tests/consumer/spark/test_contracts.py",
    "consumer/spreading.py": "tests/consumer/test_spreading.py",
    "collector/server.py": "tests/collector/test_contracts.py",
}
"""Modules that may use a library beyond its public interface, and the tests of their assumptions."""
DOCUMENTED = {"_asdict", "_make", "_replace", "_exit"}
"""Public names that begin with an underscore: of named tuples, and of os."""
OF_JAVA = ("org.apache.", "java.", "com.", "software.")
CONFIGURATION = {"lakeproof/catalog.py", "lakeproof/connect/snippets.py", "lakeproof/install/jars.py"} | {
    "lakeproof/kafka/client.py"
}
"""Modules with names of Java classes in settings of Spark or Kafka, or on a command line."""


def private_names(path: Path) -> set[str]:
    """Return the names that a module uses beyond a library's public interface, and of classes in the JVM."""
    tree = ast.parse(path.read_text())
    own = {getattr(node, "name", None) for node in ast.walk(tree)} | {
        target.attr if isinstance(target, ast.Attribute) else target.id
        for target in ast.walk(tree)
        if isinstance(target, ast.Attribute | ast.Name) and isinstance(target.ctx, ast.Store)
    }
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name("self")):
                continue
            # Names in capitals are librdkafka's own error codes, which are documented.
            case ast.Attribute(attr=name) if not name.isupper() and name not in own:
                found.add(name)
            case ast.ImportFrom(module=str(module), names=names):
                if module.partition(".")[0] not in {"lakeproof", *PROGRAMS}:
                    found |= {part for part in module.split(".") if part != "__future__"}
                    found |= {alias.name for alias in names}
            case ast.Call(func=ast.Name("getattr" | "setattr"), args=[_, ast.Constant(str(name)), *_]):
                found.add(name)
            case ast.Constant(str(text)) if text.startswith(OF_JAVA) and re.fullmatch(r"[\w.]+", text):
                found.add(text)
    private = {name for name in found if name.startswith("_") and not name.startswith("__")} - DOCUMENTED
    return private | {name for name in found if name.startswith(OF_JAVA)}


def test_no_modules_import_each_other():
    """Imports within functions count, too; those for types alone do not."""
    graph = build_graph(
        "lakeproof", "producer", "collector", "consumer", "reader", exclude_type_checking_imports=True, cache_dir=None
    )
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imported) > 400
    TopologicalSorter(imported).prepare()  # raises CycleError with a cycle


def test_libraries_are_used_beyond_their_interface_in_few_rooms_with_a_contract_test():
    """Each JVM class and each private name of a library that is used appears in a contract test of its room, too."""
    strangers, untested = {}, {}
    for path in (ROOT / "src").rglob("*.py"):
        module, found = path.relative_to(ROOT / "src").as_posix(), private_names(path)
        if module in CONFIGURATION:
            found = {name for name in found if not name.startswith(OF_JAVA)}
        contracts = next((tests for room, tests in PRIVATE_ROOMS.items() if module.startswith(room)), None)
        if contracts is None:
            strangers |= {module: found} if found else {}
        elif found := {name for name in found if name not in (ROOT / contracts).read_text()}:
            untested[module] = found
    assert strangers == {}, f"move what uses them to one of the rooms that may: {[*PRIVATE_ROOMS]}"
    assert untested == {}, "add what is relied on to the contract tests of the room"
