"""The manifests of deploy/kubernetes, and Spark's driver with an API server that starts pods as processes.

There is no Kubernetes here: the schemas define which objects it would accept, and the server supports Spark's requests.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer
import yaml
from tests.chaos.processes import Process, wait_until
from tests.kubernetes import VERSION, Kubernetes
from tests.pages import blocks
from tests.servers import ROOT, SPARK_JARS

from lakeproof.cluster import check_reachable, places_of
from lakeproof.errors import UsageError
from lakeproof.settings import VARIABLES, Settings, load_settings, settings_of

FOLDER = ROOT / "deploy" / "kubernetes"
SECRETS = {
    "AWS_ACCESS_KEY_ID": "id-of-the-test",
    "AWS_SECRET_ACCESS_KEY": "secret-of-the-test",
    "LAKE_CATALOG_URI": "postgresql://lake:secret-of-postgres@db/lake",
    "LAKE_LANDING_LOG_URI": "postgresql://lake:secret-of-postgres@db/lake",
}
"""The keys of the Secret according to the comment of the settings."""
_PATIENCE = 600.0  # of a busy machine
EVENT = {"user_id": "u", "event_timestamp": "2026-11-21T06:00:00Z", "event_type": "page_view", "properties": {}}


def documents() -> Iterator[dict[str, Any]]:
    for path in sorted(FOLDER.glob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text())


KUSTOMIZATION = next(each for each in documents() if each["kind"] == "Kustomization")
OBJECTS = {
    (each["kind"], each["metadata"]["name"]): each
    for each in documents()
    if each is not KUSTOMIZATION and "metadata" in each
}
DEPLOYMENT = OBJECTS["Deployment", "consumer"]
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
SPARK = OBJECTS["ConfigMap", "spark"]["data"]


def properties() -> dict[str, str]:
    """Return the properties in spark-defaults.conf."""
    lines = [line for line in SPARK["spark-defaults.conf"].splitlines() if line and not line.startswith("#")]
    return dict(line.split(None, 1) for line in lines)


def validate(document: Mapping[str, Any]) -> None:
    kubernetes_validate.validate(dict(document), VERSION, strict=True)


@pytest.mark.parametrize("name", OBJECTS, ids=lambda name: "-".join(name))
def test_each_manifest_is_what_kubernetes_accepts(name: tuple[str, str]) -> None:
    validate(OBJECTS[name])


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("Deployment", '"readinessProbe"', '"readynessProbe"'),
        ("Deployment", '"replicas": 1', '"replicas": "one"'),
        ("Deployment", '"selector"', '"selectors"'),
        ("Deployment", '"mountPath"', '"path"'),
        ("Role", '"verbs"', '"verb"'),
        ("Service", '"clusterIP"', '"clusterIp"'),
    ],
)
def test_a_wrong_field_would_be_found(kind: str, old: str, new: str) -> None:
    text = next(json.dumps(each) for (each_kind, _), each in OBJECTS.items() if each_kind == kind)
    assert old in text
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(json.loads(text.replace(old, new)))


def test_the_template_of_executors_is_a_pod() -> None:
    template = yaml.safe_load(SPARK["executor.yaml"])
    validate(template)
    for key in ("securityContext", "automountServiceAccountToken"):
        assert key in template["spec"]
    assert template["spec"]["securityContext"] == POD["securityContext"]


def test_the_kustomization_has_all_of_them_in_one_namespace() -> None:
    assert {*KUSTOMIZATION["resources"]} == {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert OBJECTS["Namespace", KUSTOMIZATION["namespace"]]
    assert properties()["spark.kubernetes.namespace"] == KUSTOMIZATION["namespace"]


def environment() -> dict[str, str]:
    """Return the variables of the consumer."""
    settings, secrets = (source for source in CONTAINER["envFrom"])
    assert secrets["secretRef"]["name"] == "lakeproof"
    own = {each["name"]: each.get("value", "") for each in CONTAINER["env"]}
    return OBJECTS["ConfigMap", settings["configMapRef"]["name"]]["data"] | SECRETS | own


def loaded(variables: Mapping[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(folder)  # without .env
    for name in [name for name in os.environ if name in VARIABLES]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return load_settings()


def test_the_variables_are_settings_and_the_lake_is_one_that_executors_reach(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = loaded(environment(), tmp_path, monkeypatch)
    assert check_reachable(settings, places_of(settings)) == "k8s://https://kubernetes.default.svc:443"
    assert environment().keys() - VARIABLES == {"POD_NAME", "SPARK_CONF_DIR"}
    comment = (FOLDER / "settings.yaml").read_text().partition("apiVersion")[0]
    assert {*re.findall(r"(?:AWS|LAKE)_\w+", comment)} == SECRETS.keys()
    mounts = {each["name"]: each["mountPath"] for each in CONTAINER["volumeMounts"]}
    assert mounts == {"lake": str(settings.home), "spark": environment()["SPARK_CONF_DIR"]}
    template = properties()["spark.kubernetes.executor.podTemplateFile"]
    assert template == f"{environment()['SPARK_CONF_DIR']}/executor.yaml"
    with pytest.raises(UsageError, match="LAKE_EXECUTOR in the environment is not a setting"):
        loaded(environment() | {"LAKE_EXECUTOR": "2"}, tmp_path, monkeypatch)


def test_commands_are_the_programs_own() -> None:
    from consumer.cli import app

    program, command, *arguments = CONTAINER["command"]
    assert program == "consumer"
    parser = typer.main.get_command(app).commands[command]  # type: ignore[attr-defined]
    with parser.make_context(command, list(arguments)) as context:
        assert context.params["streams"] == ["events"]
    with pytest.raises(Exception, match="No such option"):
        parser.make_context(command, [*arguments, "--maintan"])


def test_names_ports_and_images_are_the_same_everywhere() -> None:
    ports = {each["name"]: each["containerPort"] for each in CONTAINER["ports"]}
    service = OBJECTS["Service", "consumer"]["spec"]
    said = properties()
    assert {each["name"]: each["port"] for each in service["ports"]}.items() <= ports.items()
    assert environment()["LAKE_METRICS"].rpartition(":")[2] == str(ports["metrics"])
    assert (said["spark.driver.port"], said["spark.driver.blockManager.port"]) == (
        str(ports["driver"]),
        str(ports["blocks"]),
    )
    assert said["spark.driver.host"] == f"consumer.{KUSTOMIZATION['namespace']}.svc"
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert service["selector"] == DEPLOYMENT["spec"]["selector"]["matchLabels"] == labels
    assert service["clusterIP"] == "None"
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert CONTAINER[probe]["httpGet"] == {"path": path, "port": "metrics"}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert CONTAINER["image"] == said["spark.kubernetes.container.image"] == f"lakeproof-consumer:{version}"
    binding = OBJECTS["RoleBinding", "consumer"]
    assert ("Role", binding["roleRef"]["name"]) in OBJECTS
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": POD["serviceAccountName"]}]
    for name in (POD["serviceAccountName"], said["spark.kubernetes.authenticate.executor.serviceAccountName"]):
        assert ("ServiceAccount", name) in OBJECTS
    for volume in POD["volumes"]:
        assert "emptyDir" in volume or ("ConfigMap", volume["configMap"]["name"]) in OBJECTS
    secrets = {name.rpartition(".")[2]: value for name, value in said.items() if ".secretKeyRef." in name}
    assert secrets == {name: f"lakeproof:{name}" for name in SECRETS if name.startswith("AWS_")}


def test_the_image_has_what_pods_of_executors_are_started_with() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    stage = dockerfile.partition("AS consumer\n")[2].partition("\nFROM")[0]
    assert "COPY deploy/kubernetes/executor.sh /usr/local/bin/executor" in stage
    assert "ENTRYPOINT" not in dockerfile  # the argument `executor` is the command
    ignored = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    assert "!deploy/kubernetes/executor.sh" in ignored


def test_the_page_names_what_there_is() -> None:
    (block,) = (each for each in blocks("docs/operations/cluster.md", "text") if "kubectl" in each)
    build, _, secret, apply = block.splitlines()
    assert f"--tag {CONTAINER['image']} ." in build
    assert "--target consumer " in build
    assert re.search(r"^FROM \S+ AS consumer$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    assert f"generic lakeproof --namespace {KUSTOMIZATION['namespace']}" in secret
    paths = re.findall(r"deploy/[\w./]+", block)
    assert paths
    assert all((ROOT / path).exists() for path in paths)
    assert apply.endswith("--kustomize deploy/kubernetes")
    page = (ROOT / "docs" / "operations" / "cluster.md").read_text()
    assert SECRETS.keys() <= {*re.findall(r"`(\w+)`", page.partition("`lakeproof.env` contains")[2].partition(".")[0])}


def test_masters_of_kubernetes_are_completed_and_others_refused() -> None:
    for text, expected in (
        ("k8s://10.0.0.1:6443", "k8s://https://10.0.0.1:6443"),
        ("k8s://http://10.0.0.1:8001", "k8s://http://10.0.0.1:8001"),
        ("k8s://https://api.example.com/clusters/a", "k8s://https://api.example.com/clusters/a"),
    ):
        assert settings_of({"LAKE_SPARK_MASTER": text}).spark.master == expected
    for text in ("k8s://", "k8s://ftp://host:1", "k8s://host:port"):
        with pytest.raises(UsageError, match="is not a Spark master"):
            settings_of({"LAKE_SPARK_MASTER": text})


def land(folder: Path) -> None:
    folder.mkdir(parents=True)
    for number in range(4):
        records = [EVENT | {"event_id": str(1_000 * number + each)} for each in range(1_000)]
        (folder / f"{number}.json").write_text(json.dumps(records))


def kept(process: Process) -> int:
    """Return the number of rows kept in silver, from the log."""
    return sum(line.values["kept"] for line in process.said("silver micro-batch"))


@pytest.mark.long
@pytest.mark.spark
def test_a_driver_runs_on_executors_that_are_pods(tmp_path: Path) -> None:
    """The Role's permissions are enough, executors are pods that Kubernetes accepts, and no secret leaks."""
    image = tmp_path / "bin"
    image.mkdir()
    (image / "executor").symlink_to(FOLDER / "executor.sh")
    folder = tmp_path / "spark"
    folder.mkdir()
    (folder / "executor.yaml").write_text(SPARK["executor.yaml"])
    elsewhere = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.port": "0",
        "spark.driver.blockManager.port": "0",
        "spark.kubernetes.executor.podTemplateFile": str(folder / "executor.yaml"),
    }
    lines = [f"{name} {value}" for name, value in (properties() | elsewhere).items()]
    (folder / "spark-defaults.conf").write_text("\n".join(lines))
    path = f"{image}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    secrets = {f"lakeproof:{name}": value for name, value in SECRETS.items()}
    with Kubernetes(tmp_path / "pods", path, secrets, KUSTOMIZATION["namespace"], "consumer-7f") as kubernetes:
        variables = {
            "LAKE_HOME": str(tmp_path / "home"),
            "LAKE_SPARK_SHARED": str(tmp_path),
            "LAKE_CONTRACTS": str(ROOT / "contracts"),
            "LAKE_GOLD": str(ROOT / "gold"),
            "LAKE_JARS": str(SPARK_JARS),
            "LAKE_SPARK_UI_PORT": "0",
            "LAKE_SPARK_MASTER": kubernetes.master,
            "LAKE_EXECUTORS": "2",
            "AWS_SECRET_ACCESS_KEY": "secret-of-the-driver",
            "AWS_ACCESS_KEY_ID": "id",
            "SPARK_CONF_DIR": str(folder),
            "POD_NAME": kubernetes.driver,
        }

        command = [sys.executable, "-m", "consumer", "run", "events", "--trigger", "1 second"]
        with Process(command, os.environ | variables, tmp_path / "output") as process:
            # It starts before any file lands: tasks of an empty micro-batch do not need the driver's Python.
            assert wait_until(lambda: bool(process.said("started")) or not process.alive, _PATIENCE), process.text()
            killed = kubernetes.executors()[0].process
            assert killed is not None
            killed.kill()
            land(tmp_path / "home" / "landing" / "events")
            assert wait_until(lambda: kept(process) == 4_000 or not process.alive, _PATIENCE, 0.5), process.text()
            process.signal_itself(signal.SIGTERM)
            assert process.wait(_PATIENCE) == 0, process.text()
        logs = process.text() + "".join(log.read_text() for log in kubernetes.folder.glob("*.log"))
        verified = subprocess.run(
            [sys.executable, "-m", "reader", "verify", "events"],
            env=os.environ | variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        assert verified.returncode == 0, verified.stdout + verified.stderr
        executors = [pod.manifest for pod in kubernetes.executors()]
    assert len(executors) == 3  # including a replacement for the killed one
    allowed = {
        (verb, resource)
        for rule in OBJECTS["Role", "spark-driver"]["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }
    assert {("create", "pods"), ("delete", "pods"), ("watch", "pods")} <= kubernetes.asked <= allowed
    for pod in executors:
        assert [owner["name"] for owner in pod["metadata"]["ownerReferences"]] == ["consumer-7f"]
        assert pod["spec"]["serviceAccountName"] == "executor"
        (container,) = pod["spec"]["containers"]
        assert container["args"] == ["executor"]
        assert container["image"] == CONTAINER["image"]
        assert container["resources"]["limits"]["memory"] == "2048Mi"  # heap, and Python's memory
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert "secret-of" not in "".join(kubernetes.bodies) + logs
