"""The part of Kubernetes that Spark's driver uses, as a local server: pods are local processes.

It supports the requests of a driver in client mode to the API server, starts a pod's container with only the
variables in its spec, and checks each pod against the schemas of Kubernetes.
"""

import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate
from tests.rest_login import answer_json

Object = dict[str, Any]
VERSION = "1.34"
"""Version of the schemas."""
_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update"}
_WATCH_SECONDS = 0.2


@dataclass
class Pod:
    """A pod and its process."""

    manifest: Object
    process: subprocess.Popen[bytes] | None = None  # None for the driver's pod
    changes: int = 0

    @property
    def phase(self) -> str:
        code = self.process.poll() if self.process else None
        return "Running" if code is None else "Failed" if code else "Succeeded"

    @property
    def now(self) -> Object:
        """Return the pod as shown by the API server."""
        return self.manifest | {"status": {"phase": self.phase, "podIP": "127.0.0.1", "containerStatuses": []}}


@dataclass
class Kubernetes:
    """An API server with one namespace and one pod for the driver.

    Parameters
    ----------
    folder
        Folder for logs and volumes of pods.
    path
        PATH of the image's containers.
    secrets
        Values of secrets, by ``name:key``.
    """

    folder: Path
    path: str
    secrets: Mapping[str, str]
    namespace: str
    driver: str
    asked: set[tuple[str, str]] = field(default_factory=set)
    """Verbs and resources of all requests, with the names used in a Role."""
    bodies: list[str] = field(default_factory=list)
    pods: dict[str, Pod] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.pods[self.driver] = Pod(self._made({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.driver}}))
        kubernetes = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                kubernetes._answer(self)

            do_POST = do_DELETE = do_PATCH = do_PUT = do_GET  # noqa: N815 - names of the base class

            def log_message(self, *_arguments: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._ending = threading.Event()
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._ending.set()
        self._server.shutdown()
        self._server.server_close()
        for pod in self.pods.values():
            self._end(pod)

    @property
    def master(self) -> str:
        """Value for LAKE_SPARK_MASTER."""
        return f"k8s://http://127.0.0.1:{self._server.server_port}"

    def executors(self) -> list[Pod]:
        """Return the pods created by the driver."""
        return [pod for name, pod in self.pods.items() if name != self.driver]

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        _, _, _, namespace, resource, *name = parts.path.strip("/").split("/")
        assert parts.path.startswith("/api/v1/namespaces/")
        assert namespace == self.namespace
        one = name[0] if name else None
        watched = query.get("watch") == "true" and request.command == "GET"
        if "Upgrade" in request.headers:  # to a web socket: clients fall back to plain HTTP
            answer_json(request, 503, {"kind": "Status", "code": 503})
            return
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        content: Object = json.loads(body) if body else {}
        self.bodies.append(body.decode())
        plural = {"GET": "list", "DELETE": "deletecollection"}
        verb = _VERBS.get(request.command) or (
            {"GET": "get", "DELETE": "delete"}[request.command] if one else plural[request.command]
        )
        self.asked.add(("watch" if watched else verb, resource))
        if resource != "pods":
            answer_json(request, 200, content | {"items": []} if not one and verb != "create" else self._made(content))
        elif watched:
            self._watch(request, query)
        elif verb == "create":
            answer_json(request, 201, self._start(content))
        elif one and one not in self.pods:
            answer_json(request, 404, {"kind": "Status", "code": 404, "reason": "NotFound"})
        else:
            chosen = [self.pods[one]] if one else self._chosen(query)
            if request.command == "DELETE":
                for pod in chosen:
                    self._end(pod)
            shown = [pod.now for pod in chosen]
            listed = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": shown}
            answer_json(request, 200, shown[0] if one else listed)

    def _chosen(self, query: Mapping[str, str]) -> list[Pod]:
        """Return the pods with the labels in a request."""
        terms = [term.partition("=") for term in query.get("labelSelector", "").split(",") if term]
        wanted = [(name.removesuffix("!"), not name.endswith("!"), value) for name, _, value in terms]
        return [
            pod
            for pod in list(self.pods.values())
            for labels in [pod.manifest["metadata"].get("labels", {})]
            if all((labels.get(name) == value) is same for name, same, value in wanted)
        ]

    def _watch(self, request: BaseHTTPRequestHandler, query: Mapping[str, str]) -> None:
        """Send each change of a phase as a line, until the end."""
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        seen: dict[str, str] = {}
        with suppress(OSError):
            while not self._ending.wait(_WATCH_SECONDS):
                for pod in self._chosen(query):
                    name = pod.manifest["metadata"]["name"]
                    if seen.get(name) != pod.phase:
                        event = {"type": "MODIFIED" if name in seen else "ADDED", "object": pod.now}
                        line = json.dumps(event).encode() + b"\n"
                        request.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                        request.wfile.flush()
                        seen[name] = pod.phase

    def _start(self, manifest: Object) -> Object:
        kubernetes_validate.validate(manifest, VERSION, strict=True)
        made = self._made(manifest)
        name = made["metadata"]["name"]
        (container,) = made["spec"]["containers"]
        environment = dict(self._variables(made, container))
        for volume in made["spec"].get("volumes", []):
            if "emptyDir" in volume:
                (at,) = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == volume["name"]]
                here = self.folder / name / volume["name"]
                here.mkdir(parents=True)
                environment = {key: value.replace(at, str(here)) for key, value in environment.items()}
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*container.get("command", []), *container["args"]],
                env=environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.pods[name] = Pod(made, process)
        return self.pods[name].now

    def _variables(self, pod: Object, container: Object) -> Iterator[tuple[str, str]]:
        """Yield the variables of a container, from the image and from the manifest."""
        yield "PATH", self.path
        yield "JAVA_HOME", os.environ.get("JAVA_HOME") or str(_java_home())
        for each in container["env"]:
            source = each.get("valueFrom", {})
            if reference := source.get("secretKeyRef"):
                yield each["name"], self.secrets[f"{reference['name']}:{reference['key']}"]
            elif reference := source.get("fieldRef"):
                fields = {"status.podIP": "127.0.0.1", "metadata.name": pod["metadata"]["name"]}
                yield each["name"], fields[reference["fieldPath"]]
            elif "value" in each:
                yield each["name"], each["value"]

    def _made(self, content: Object) -> Object:
        """Return an object as stored by the API server."""
        name = content.get("metadata", {}).get("name", "")
        own = {"namespace": self.namespace, "uid": f"uid-of-{name}", "resourceVersion": "1"}
        return content | {"metadata": content.get("metadata", {}) | own}

    def _end(self, pod: Pod) -> None:
        if pod.process:
            pod.process.terminate()
            try:
                pod.process.wait(10)
            except subprocess.TimeoutExpired:
                pod.process.kill()


def _java_home() -> Path:
    found = subprocess.run(["which", "java"], capture_output=True, text=True, check=True).stdout.strip()
    return Path(found).resolve().parents[1]
