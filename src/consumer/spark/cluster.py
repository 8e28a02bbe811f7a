"""Start of a session on a cluster: a JVM started by spark-submit, executors, and their Python."""

import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from threading import Event, Thread
from typing import Any

import structlog
from py4j.java_gateway import JavaClass, JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway

from lakeproof.cluster import MISSING, SAME, is_submitted, unlike, version_of
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.settings import Settings, load_settings, secrets_of

log = structlog.get_logger()

_JUDGE = "lakeproof-native-judge"
_SAME = (*SAME, _JUDGE)
"""Packages whose versions must be the driver's; the judge may be missing."""
_ANY = ("boto3", "confluent-kafka", "numpy", "pydantic", "structlog")
"""Packages that tasks need in any version."""
_PROBE = f"""
import json, socket, sys
from importlib.metadata import PackageNotFoundError, version
def found(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return "{MISSING}"
sys.stdin.read()
packages = {{name: found(name) for name in {(*_SAME, *_ANY)}}}
print(json.dumps([socket.gethostname(), dict(packages, Python="%d.%d" % sys.version_info[:2])]))
"""
_NO_PROGRAM = re.compile(r"Cannot run program .*")
_WAIT_SECONDS = 120.0
_LOOK_SECONDS = 10.0
_PATIENCE_SECONDS = 60.0  # a standalone master replaces an executor within seconds, Kubernetes within a minute
_AGAIN_SECONDS = 600.0
_OF_JARS = "org.apache.iceberg.spark.SparkCatalog"
_SUBMITTED = {"spark.master": "master", "spark.driver.memory": "driver_memory"}
"""Properties of spark-submit that a setting may contradict."""

_IMAGES = ("spark.kubernetes.container.image", "spark.kubernetes.executor.container.image")


def submitted_gateway() -> JavaGateway | None:
    """Return the gateway to the JVM of the spark-submit that started this program; None without spark-submit."""
    if not is_submitted():
        return None
    gateway: JavaGateway = SparkContext._gateway or launch_gateway()  # type: ignore[no-untyped-call]
    return gateway


def java_property(gateway: JavaGateway, name: str) -> str | None:
    """Return a property of the JVM: Spark's properties come from its command line and its files."""
    found: str | None = getattr(gateway.jvm, "java.lang.System").getProperty(name)
    return found


def check_deploy_mode(property_of: Callable[[str], str | None]) -> None:
    """Refuse a driver that spark-submit has started on another machine, which lacks contracts and settings."""
    # On Kubernetes, the driver's pod is in client mode again, but with this property.
    if property_of("spark.submit.deployMode") == "cluster" or property_of("spark.kubernetes.submitInDriver") == "true":
        raise UsageError(
            "spark-submit was given --deploy-mode cluster, but lakeproof runs in client mode only.",
            "Leave it out, and run spark-submit where contracts and settings are. On Kubernetes, run the consumer in a "
            "Deployment: see docs/operations/cluster.md.",
        )


def check_image(master: str, property_of: Callable[[str], str | None]) -> None:
    """Refuse Kubernetes without an image for executors: Spark would keep trying to create pods without an image."""
    if master.startswith("k8s://") and not any(property_of(name) for name in _IMAGES):
        raise UsageError(
            f"Spark's properties have no {_IMAGES[0]}, which executors on Kubernetes are started from.",
            "Set it in spark-defaults.conf in SPARK_CONF_DIR: deploy/kubernetes has one.",
        )


def adopt_submitted() -> None:
    """Adopt properties of spark-submit as settings; refuse contradictions, and a JVM without our secrets or jars."""
    gateway = submitted_gateway()
    if gateway is None:
        return
    check_deploy_mode(partial(java_property, gateway))
    settings = load_settings()
    own, java = settings.spark, getattr(gateway.jvm, "java.lang.System")
    for name, field in _SUBMITTED.items():
        said, asked = java_property(gateway, name), getattr(own, field)
        variable = str(type(own).model_fields[field].alias)
        if said is None:
            continue
        if field in own.model_fields_set and said != asked:
            raise UsageError(f"spark-submit says {name}={said}, but {variable} is {asked}.", f"Unset {variable}.")
        os.environ[variable] = said
    lacking = [name for name, value in secrets_of(settings).items() if value and java.getenv(name) != value]
    if lacking:
        raise UsageError(
            f"spark-submit was started without {', '.join(lacking)} in its environment: .env is read too late for it.",
            "Export what .env has of them before spark-submit.",
        )
    if not isinstance(getattr(gateway.jvm, _OF_JARS), JavaClass):
        raise UsageError(
            "spark-submit has started Spark without the jars of lakeproof.",
            "Run `lakeproof cluster conf > lakeproof.conf`, and add --properties-file lakeproof.conf to spark-submit.",
        )


def check_executors(context: SparkContext, settings: Settings) -> None:
    """Wait for the requested executors, and refuse them if their Python or packages differ from the driver's."""
    # From Spark's properties: spark-submit may set it as well.
    wanted = int(context.getConf().get("spark.executor.instances") or 1)
    if context.getConf().get("spark.dynamicAllocation.enabled") != "true":
        deadline = time.monotonic() + _WAIT_SECONDS
        while (found := _executors(context)) < wanted and time.monotonic() < deadline:
            time.sleep(0.2)
        if not found:
            raise UnavailableError(
                f"No executor of {settings.spark.master} has started within {_WAIT_SECONDS:.0f} s.",
                "See its page, or `kubectl get pods`: perhaps no worker has enough free memory or cores. "
                f"Check LAKE_EXECUTOR_MEMORY and LAKE_EXECUTOR_CORES. Details: {settings.logs / 'spark.log'}",
            )
        if found < wanted:
            log.warning("executors are missing", found=found, asked_for=wanted, master=settings.spark.master)
    python = str(context.pythonExec)
    try:
        found_there = _probe(context, python)
    except Py4JJavaError as error:
        why = _NO_PROGRAM.search(str(error))
        raise UsageError(
            f"The executors cannot run {python}: {why[0] if why else 'it failed'}.",
            "Set LAKE_SPARK_PYTHON to the Python on their machines.",
        ) from error
    ours = {name: version_of(name) for name in (*_SAME, *_ANY)} | {"Python": "{}.{}".format(*sys.version_info[:2])}
    for host, theirs in sorted(found_there.items()):
        if problem := differences(host, ours, theirs, judge=settings.judge):
            raise problem
    log.info("executors", found=_executors(context), cores=context.defaultParallelism, hosts=sorted(found_there))


def watch_executors(context: SparkContext, master: str) -> Callable[[], None]:
    """Warn, from a thread, while jobs wait without an executor; return the function that ends it.

    Spark waits forever, and only its own log says so.
    """
    done = Event()
    Thread(target=_watch, args=(context, master, done), name="executors", daemon=True).start()
    return done.set


def _watch(context: SparkContext, master: str, done: Event) -> None:
    since = said = math.inf
    while not done.wait(_LOOK_SECONDS):
        try:
            waits = not _executors(context) and bool(context.statusTracker().getActiveJobsIds())
        except (Py4JError, OSError):  # the session is ending
            return
        now = time.monotonic()
        if not waits:
            if said < math.inf:
                log.info("executors are back", master=master)
            since = said = math.inf
            continue
        since = min(since, now)
        if now - since >= _PATIENCE_SECONDS and (said == math.inf or now - said >= _AGAIN_SECONDS):
            said = now
            log.warning("jobs wait for an executor", seconds=round(now - since), master=master)


def differences(host: str, ours: Mapping[str, str], theirs: Mapping[str, str], judge: str) -> LakeproofError | None:
    """Return an error if an executor's packages differ from the driver's; a missing native judge is a warning."""
    wrong = {name: theirs[name] for name in ("Python", *_SAME) if theirs[name] != ours[name]}
    wrong |= {name: MISSING for name in _ANY if theirs[name] == MISSING}
    if judge != "native" and MISSING in (wrong.get(_JUDGE), ours[_JUDGE]):
        wrong.pop(_JUDGE, None)
        if theirs[_JUDGE] != ours[_JUDGE]:
            log.warning("native judge missing on the driver or an executor: judging speeds differ", executor=host)
    if not wrong:
        return None
    return unlike(host, ours, wrong)


def _executors(context: SparkContext) -> int:
    """Return the number of registered executors."""
    spark: Any = context._jsc.sc()
    return len(spark.statusTracker().getExecutorInfos()) - 1  # the driver counts as one


def _probe(context: SparkContext, python: str) -> dict[str, dict[str, str]]:
    """Return the versions of Python and packages on each executor's machine, without use of Spark's Python workers."""
    cores = context.defaultParallelism
    java: Any = context._jsc
    lines = java.parallelize(list(range(cores)), cores).pipe([python, "-c", _PROBE]).collect()
    return dict(json.loads(line) for line in lines)
