"""The Spark session, configured in one place, and the shortcuts that speed up its start.

LAKE_SPARK_WITHOUT turns off shortcuts by name: see docs/decisions/0007-quick-start.md.
"""

import gc
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Thread, current_thread, main_thread
from xml.sax.saxutils import quoteattr

import psutil
import structlog
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from consumer.iceberg.jvm import first_cause, import_classes
from consumer.iceberg.memory import MEMORY
from consumer.spark.cluster import check_executors, check_image, java_property, submitted_gateway, watch_executors
from consumer.spreading import Broadcasts
from lakeproof.catalog import HIDDEN, spark_properties
from lakeproof.cluster import (
    QUICK_PYTHON,
    class_paths,
    driver_options,
    executor_defaults,
    executor_properties,
    find_jars,
    quoted_option,
)
from lakeproof.errors import UnavailableError
from lakeproof.logs import logs_are_json
from lakeproof.settings import Settings, export_secrets

log = structlog.get_logger()

PLANNING_ONLY = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
"""Options for a driver whose JVM plans and commits while Python workers carry the data.

The second JIT compiler would take processor time from the workers, over a backlog of 300 MB as much as all the rest of
the JVM. With one compiler, the JVM reserves 48 MB for compiled code instead of 240 MB. Spark's generated classes fill
these within minutes of a stream; from then on the JVM discards compiled code and compiles it again.
"""

_NICENESS = 10
_INCUBATOR = b"WARNING: Using incubator modules"
# Distinguishes the JVM that a launch has started from other children of this process.
_LAUNCH = "LAKEPROOF_LAUNCH"
_EXIT_SECONDS = 300.0

_ENDS = ExitStack()
"""Callbacks that undo the session's changes to this process. PySpark has one context for each process."""


def start_session(
    settings: Settings,
    name: str,
    java_options: Sequence[str] = (),
    archive_to: Path | None = None,
    urgent: Sequence[str] = (),
    weights: Mapping[str, int] | None = None,
) -> SparkSession:
    """Start Spark with the catalog ``lake``, or return the running session.

    `java_options` are more options for the driver's JVM, such as :data:`PLANNING_ONLY`. At its end, the JVM archives
    its loaded classes in `archive_to`. Tasks of the scheduler pools `urgent` get the next free core; if there are
    urgent pools, Python workers on this machine leave the processor to the JVM. Other pools share the cores by their
    `weights`, or evenly.
    """
    gateway, own, takes = submitted_gateway(), settings.spark, settings.spark.takes
    is_new = running_context() is None
    jars = find_jars(settings)
    settings.logs.mkdir(parents=True, exist_ok=True)
    options = {
        "spark.ui.showConsoleProgress": "false",
        # Its address answers GET without a login, so any page open in the browser could end a query.
        "spark.ui.killEnabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        # Queries take turns on the cores: a busy query does not keep the others waiting.
        "spark.scheduler.mode": "FAIR",
        # A full collection also frees memory outside the heap, but a lack of that memory does not start one. With
        # Spark's interval of 30 minutes, a stream grew by a gigabyte.
        "spark.cleaner.periodicGC.interval": "5min",
        # Hidden in Spark's page and event logs: settings by name, and addresses with a password.
        "spark.redaction.regex": rf"{HIDDEN}|://[^/\s:]*:[^/\s]*@",
    }
    if not gateway:
        options |= {
            "spark.master": own.master,
            "spark.app.name": name,
            "spark.driver.memory": own.driver_memory,
            "spark.driver.extraJavaOptions": " ".join(map(quoted_option, _of_jvm(settings, java_options, archive_to))),
            "spark.ui.port": str(own.ui_port),
            **class_paths(jars, is_remote=own.is_remote),
        }
        if own.is_remote:
            options |= executor_properties(settings)
    if takes("workers"):
        options["spark.python.daemon.module"] = "consumer.spark.worker_daemon"
    if not own.is_remote and takes("files"):
        # Sets a file's permissions with a call; Hadoop's own class starts a process (chmod), 24 per micro-batch.
        options["spark.hadoop.fs.file.impl"] = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
    conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
    try:
        with _environment(settings, _of_workers(settings, bool(urgent))), tempfile.TemporaryDirectory() as folder:
            pools = Path(folder) / "pools.xml"  # read once, at the start
            pools.write_text(pools_with(urgent, weights or {}))
            conf.set("spark.scheduler.allocation.file", pools.as_uri())
            session = _session(settings, conf, gateway)
        if own.is_remote and is_new:
            check_executors(session.sparkContext, settings)
            _ENDS.callback(watch_executors(session.sparkContext, own.master))
        if is_new:
            import_classes(session)
            _collect_often()
    except PySparkRuntimeError as error:
        raise UnavailableError(
            f"Spark's JVM did not start: {str(error).rstrip('.')}.",
            "Its output is above. LAKE_DRIVER_MEMORY may be too large. Run `lakeproof doctor` to check the machine.",
        ) from error
    except Py4JError as error:
        raise UnavailableError(
            f"Spark did not start: {first_cause(error)}",
            f"Check LAKE_SPARK_MASTER and LAKE_DRIVER_MEMORY. Details: {settings.logs / 'spark.log'}",
        ) from error
    return session


def _collect_often() -> None:
    """Let Python's garbage collector consider only new objects, so that it makes full collections often.

    Until a full collection, the JVM keeps each object that Python had, such as a table with its snapshots: py4j's
    objects refer to themselves. Without this, 5,000 commits kept 2 GB.
    """
    gc.freeze()
    youngest, middle, _ = gc.get_threshold()
    gc.set_threshold(youngest, middle, 2)
    gc.collect()


def end_session() -> None:
    """End Spark and its JVM, wait until they have ended, and undo the changes of the start to this process."""
    _ENDS.close()


def _of_jvm(settings: Settings, more: Sequence[str], archive_to: Path | None) -> list[str]:
    """Return the options of the driver's JVM."""
    # With 60 %, a full collection returns memory that the old generation no longer needs; the default keeps all of it.
    jvm = [*driver_options(settings), "-XX:+UseParallelGC", "-XX:MaxHeapFreeRatio=60", *more]
    if archive_to:
        return [*jvm, f"-XX:ArchiveClassesAtExit={archive_to}", "-Xlog:disable"]
    archive = class_archive(settings)
    if archive.exists() and settings.spark.takes("archive"):
        # Halves the start time. A JVM other than the one that made the archive ignores it.
        return [*jvm, f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    return jvm


def _of_workers(settings: Settings, urgent: bool) -> dict[str, str]:
    """Return environment variables for the start of Spark's workers; values set by the user are kept."""
    # glibc would make eight pools of memory for each core, and each keeps what it once needed.
    defaults = {"PYSPARK_PYTHON": sys.executable, "MALLOC_ARENA_MAX": "4"}
    own, spark = dict[str, str](), settings.spark
    if spark.takes("workers"):
        own = {"LAKEPROOF_PYTHON": sys.executable, "LAKEPROOF_NICENESS": str(_NICENESS if urgent else 0)}
    if spark.is_remote:
        # Processes that Spark starts beside the driver use the driver's Python.
        defaults["PYSPARK_PYTHON"] = spark.python_of_executors
        own |= {"PYSPARK_DRIVER_PYTHON": sys.executable}
        own |= {"PYSPARK_PYTHON": spark.python} if spark.python else {}
    else:
        defaults["SPARK_LOCAL_IP"] = "127.0.0.1"  # a single machine: not reachable from others
        if spark.takes("workers"):
            defaults["PYSPARK_PYTHON"] = str(QUICK_PYTHON)
    return {name: value for name, value in defaults.items() if name not in os.environ} | own


@contextmanager
def _environment(settings: Settings, variables: Mapping[str, str]) -> Iterator[None]:
    """Let the JVM, and so its workers, inherit variables and the secrets, without a change of this process's own.

    PySpark copies :data:`os.environ` for the JVM, so a copy takes its place. A change of the real one is a change of
    memory that other threads read: native code looks up variables such as TZ at any time, and the process would crash.
    """
    own = os.environ
    os.environ = own | variables  # type: ignore[assignment]  # noqa: B003 - a plain dict
    try:
        export_secrets(settings)
        yield
    finally:
        os.environ = own  # noqa: B003


def running_context() -> SparkContext | None:
    """Return Spark's context while its JVM runs; otherwise None."""
    context = SparkContext._active_spark_context
    return context if context is not None and getattr(context, "_jsc", None) is not None else None


def pools_with(urgent: Sequence[str], weights: Mapping[str, int]) -> str:
    """Return Spark's file of scheduler pools; urgent pools get more cores than exist before other pools get one."""
    pools = {
        name: f"<schedulingMode>FIFO</schedulingMode><weight>{weight}</weight>" for name, weight in weights.items()
    }
    pools |= dict.fromkeys(urgent, "<schedulingMode>FIFO</schedulingMode><minShare>1000</minShare>")
    inner = "".join(f"<pool name={quoteattr(name)}>{says}</pool>" for name, says in pools.items())
    return f"<allocations>{inner}</allocations>"


def _session(settings: Settings, conf: SparkConf, gateway: JavaGateway | None) -> SparkSession:
    """Start Spark, with the gateway of a submitted JVM if there is one, or return the running session.

    Every user of the machine sees the command line that launches the JVM. So the properties, which include secrets, are
    passed through Py4J.
    """
    # Spark sends properties to executors, and tables with their keys. A JVM that we start has keys in its environment.
    properties = spark_properties(_without_keys(settings) if settings.spark.is_remote and not gateway else settings)
    if SparkContext._active_spark_context is not None:
        return SparkSession.builder.config(conf=conf.setAll(list(properties.items()))).getOrCreate()
    end_session()  # remains of a stopped session
    interrupted = signal.getsignal(signal.SIGINT)
    # Another Python of workers, which the user has set, would never ask for it.
    if gateway is None and os.environ["PYSPARK_PYTHON"] == str(QUICK_PYTHON):
        with suppress(OSError):  # such as a path that is too long for a socket: the JVM starts a daemon itself
            os.environ["LAKEPROOF_DAEMON"] = _daemon_ahead()
    quiet = settings.spark.takes("gateway")
    if gateway is None:
        gateway = _launched_apart(conf) if quiet else launch_gateway(conf)  # type: ignore[no-untyped-call]
    if settings.spark.is_remote:
        check_image(settings.spark.master, partial(java_property, gateway))
        # After the JVM has read Spark's own files, which take precedence.
        conf.setAll([each for each in executor_defaults(settings).items() if java_property(gateway, each[0]) is None])
    context = SparkContext(conf=conf.setAll(list(properties.items())), gateway=gateway)
    context._pickled_broadcast_vars = Broadcasts()
    if current_thread() is main_thread():
        signal.signal(signal.SIGINT, interrupted)  # Spark's handler would raise KeyboardInterrupt
    _ENDS.callback(MEMORY.forget)
    if quiet:
        _silence(context)
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    _ENDS.callback(_end_jvm, gateway, session)
    return session


def _without_keys(settings: Settings) -> Settings:
    unset = dict.fromkeys(settings.s3.secrets)
    return settings.model_copy(update={"s3": settings.s3.model_copy(update=unset)})


def _end_jvm(gateway: JavaGateway, session: SparkSession) -> None:
    _end_accumulators(session.sparkContext)
    with suppress(Py4JError, OSError):  # the JVM may have ended before
        session.stop()
        gateway.shutdown()
    if gateway.proc:  # not for a submitted JVM
        gateway.proc.stdin.close()
        gateway.proc.wait(_EXIT_SECONDS)
    SparkContext._gateway = SparkContext._jvm = None


def _end_accumulators(context: SparkContext) -> None:
    """End PySpark's server of accumulators, beside the JVM: once a task has run, it notices its end a second late."""
    server = context._accumulatorServer
    if server:
        context._accumulatorServer = None  # type: ignore[assignment]  # as after its end
        Thread(target=server.shutdown, name="accumulators", daemon=True).start()


def _silence(context: SparkContext) -> None:
    """Suppress the stack traces that PySpark and Py4J print when the JVM is gone: callers get and report an error."""
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    root, own = logging.getLogger(), logging.getLogger("py4j")
    root.addFilter(_is_not_py4j)
    _ENDS.callback(root.removeFilter, _is_not_py4j)
    own.propagate = False
    _ENDS.callback(setattr, own, "propagate", True)
    # PySpark would print each error of a condition or expression, with Java's stack trace, before we report it.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).disabled = True


def _is_not_py4j(record: logging.LogRecord) -> bool:
    """Return whether a record of the root logger, which Py4J uses instead of its own, is from another module."""
    return record.module != "java_gateway"


def _launched_apart(conf: SparkConf) -> JavaGateway:
    """Launch the JVM in its own process session, and forward its standard error.

    So the JVM and its workers get no signals that a terminal or `timeout` sends to our process group. The JVM ends when
    its standard input closes, no matter how we end.
    """
    os.environ[_LAUNCH] = launch = uuid.uuid4().hex
    ours, theirs = os.pipe()
    Thread(target=_forward, args=(ours,), name="stderr of the JVM", daemon=True).start()
    try:
        return launch_gateway(conf, {"start_new_session": True, "stderr": theirs})  # type: ignore[no-untyped-call]
    except BaseException:
        # A JVM that is given up before it has reported its port would not watch its standard input.
        for child in psutil.Process().children():
            with suppress(psutil.Error, ProcessLookupError):
                if child.environ().get(_LAUNCH) == launch:
                    os.killpg(child.pid, signal.SIGKILL)
        raise
    finally:
        os.close(theirs)


def _daemon_ahead() -> str:
    """Start the daemon of Spark's workers beside the JVM, which takes as long; return the path of its socket."""
    folder = tempfile.mkdtemp(prefix="lakeproof-")
    _ENDS.callback(shutil.rmtree, folder, ignore_errors=True)
    path = f"{folder}/daemon"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(1)
        process = subprocess.Popen(
            [sys.executable, "-m", "consumer.spark.worker_daemon", str(listening.fileno())],
            # As Spark starts it: Python reads these at its start only.
            env=os.environ | {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"), "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[listening.fileno()],
            process_group=0,
        )
    _ENDS.callback(_end_daemon, process)
    return path


def _end_daemon(process: subprocess.Popen[bytes]) -> None:
    """End the daemon, also if no task has run and it still imports."""
    process.terminate()
    process.communicate(timeout=_EXIT_SECONDS)


def _forward(stream: int) -> None:
    """Forward the output of the JVM and its workers, except Java's warning that Spark uses an incubator module."""
    with os.fdopen(stream, "rb") as lines:
        for line in lines:
            if line.startswith(_INCUBATOR):
                continue
            if logs_are_json():
                log.warning("Spark's JVM", message=line.decode(errors="replace").rstrip())
            else:
                with suppress(OSError):  # nobody reads our stderr
                    os.write(sys.stderr.fileno(), line)


def class_archive(settings: Settings) -> Path:
    """Return the path of the archive of JVM classes that a start loads, beside the folder of the jars."""
    return settings.spark.jars.absolute().parent / "spark.jsa"
