"""A Spark standalone cluster as local processes: a master and one-core workers without access to our files.

A worker runs in its own mount namespace, in which the repository and the folders of the tests are empty. It has its
own working folder and Python environment, and none of our environment variables. On a machine that permits no mount
namespace, a worker could see the files; the rest is the same.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, Self

import psutil
from tests.servers import ROOT, Server, answers, free_port

_HIDING = 'for folder in $HIDDEN; do mount --bind "$EMPTY" "$folder" || exit 1; done; exec "$@"'


class Master(Server):
    """The master; it keeps its workers and applications across a restart."""

    name = "Spark's master"

    def __init__(self, folder: Path, environment: Path) -> None:
        self._environment = environment
        super().__init__(folder)

    def prepare(self) -> None:
        self._page = free_port()

    @property
    def uri(self) -> str:
        """Value for LAKE_SPARK_MASTER."""
        return f"spark://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        own = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self._page)]
        return [*_spark_class(self._environment, "org.apache.spark.deploy.master.Master"), *own]

    def options(self) -> dict[str, Any]:
        recovery = f"-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={self.folder / 'recovery'}"
        # The port of a killed master must be free for the next start.
        return {"env": _bare() | {"SPARK_MASTER_OPTS": recovery}}

    def answers(self) -> bool:
        return answers(f"http://127.0.0.1:{self._page}/json/")

    def kill(self) -> None:
        """Kill the master; it can be started again."""
        self.process.kill()
        self.stop()


class Worker(Server):
    """A worker of one core, with `variables` in the environment of its executors from its next start on."""

    name = "Spark's worker"

    def __init__(
        self,
        folder: Path,
        environment: Path,
        master: str,
        variables: Mapping[str, str],
        hidden: Iterable[Path],
        host: str,
    ) -> None:
        self._environment = environment
        self._host = host
        self._master = master
        self.variables = variables
        self._hidden = [str(path) for path in hidden] if _can_hide() else []
        super().__init__(folder)

    def prepare(self) -> None:
        self._page = free_port()
        (self.folder / "empty").mkdir()
        (self.folder / "work").mkdir()

    def command(self) -> list[str]:
        own = ["--host", self._host, "--port", str(self.port), "--webui-port", str(self._page), "--cores", "1"]
        own += ["--memory", "2g", "--work-dir", str(self.folder / "work"), self._master]
        start = [*_spark_class(self._environment, "org.apache.spark.deploy.worker.Worker"), *own]
        return ["unshare", "--mount", "sh", "-c", _HIDING, "sh", *start] if self._hidden else start

    def options(self) -> dict[str, Any]:
        own = {"HIDDEN": " ".join(self._hidden), "EMPTY": str(self.folder / "empty")}
        return {"env": _bare() | own | dict(self.variables), "cwd": self.folder / "work"}

    def answers(self) -> bool:
        return answers(f"http://127.0.0.1:{self._page}/json/")

    def executors(self) -> list[psutil.Process]:
        """Return the running executors."""
        return [child for child in self.process.children() if child.name() == "java"]

    def kill(self, *, executors: bool = False) -> None:
        """Kill the worker, optionally with its executors; it can be started again."""
        left = self.process.children(recursive=True) if executors else []
        self.process.kill()
        self.stop()
        for process in left:
            if process.is_running():
                process.kill()


class Cluster:
    """A master and two workers.

    Parameters
    ----------
    folder
        Folder for the master's recovery data.
    variables
        Environment variables of the executors with access to storage.
    hidden
        Folders hidden from workers, besides the repository.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str], hidden: Iterable[Path] = ()) -> None:
        self._stack = ExitStack()
        # Outside the hidden folders.
        self.own = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="cluster-")))
        self.environment = make_environment(self.own / "env")
        with ExitStack() as stack:
            self.master = stack.enter_context(Master(folder / "master", self.environment))
            self.workers = [
                stack.enter_context(
                    Worker(self.own / name, self.environment, self.master.uri, variables, [ROOT, *hidden], host)
                )
                # Spark starts no copy of a slow task on a host that has an attempt.
                for name, host in (("worker-0", "127.0.0.1"), ("worker-1", "127.0.0.2"))
            ]
            self._stack.push(stack.pop_all())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    @property
    def python(self) -> str:
        """Value for LAKE_SPARK_PYTHON."""
        return str(self.environment / "bin" / "python")


def make_environment(folder: Path) -> Path:
    """Make a copy of our Python environment, with copies of our packages in place of links to them."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    ours, theirs = (Path(f"{top}/lib/python3.{sys.version_info.minor}/site-packages") for top in (sys.prefix, folder))
    shutil.rmtree(theirs)
    shutil.copytree(ours, theirs, copy_function=_linked, symlinks=True, ignore=shutil.ignore_patterns("_editable_*"))
    for package in ("lakeproof", "consumer"):
        shutil.copytree(ROOT / "src" / package, theirs / package)
    return folder


def _linked(source: str, target: str) -> None:
    """Hard-link a file, which takes no time and no space; copy it from another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@cache
def _can_hide() -> bool:
    """Whether this machine permits a mount namespace."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["unshare", "--mount", "mount", "--bind", folder, folder]
        try:
            return subprocess.run(command, capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            return False


def _bare() -> dict[str, str]:
    """Return the environment of a service, with options for a quick start with little memory."""
    own = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "HOME") if name in os.environ}
    # The launcher reads JDK_JAVA_OPTIONS, so that executors, which a worker starts, have these options too.
    java = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"
    return own | {"SPARK_DAEMON_MEMORY": "256m", "JDK_JAVA_OPTIONS": java}


def _spark_class(environment: Path, name: str) -> list[str]:
    (home,) = environment.glob("lib/python*/site-packages/pyspark")
    return ["env", f"SPARK_HOME={home}", str(home / "bin" / "spark-class"), name]
