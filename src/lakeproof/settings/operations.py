"""Settings of operation: Spark, maintenance, erasure, monitoring, and `reader serve`."""

import hashlib
import sys
from pathlib import Path
from typing import Annotated

from platformdirs import user_cache_path
from pydantic import Field, SecretStr

from lakeproof.install.jars import hashes_of_spark
from lakeproof.settings.checks import (
    LEAST_MEGABYTES,
    SHORTCUTS,
    Folder,
    Location,
    checked,
    folder_list,
    listen_address,
    memory_size,
    secret_token,
    shortcut_list,
    spark_master,
)
from lakeproof.settings.group import SettingsGroup, with_prefix

_LONGEST_HOURS = 87_600  # ten years


def _cached_jars() -> Path:
    """Folder of the jars in the user's cache, one per list of jars."""
    digest = hashlib.sha256(hashes_of_spark().read_bytes()).hexdigest()
    return user_cache_path("lakeproof", appauthor=False) / f"spark-{digest[:12]}" / "jars"


class SparkSettings(SettingsGroup, title="Spark"):
    """How Spark is started."""

    master: Annotated[str, checked(spark_master)] = Field(
        "local[*]", alias="LAKE_SPARK_MASTER", description="Spark master: local[4], spark://HOST:PORT, yarn, k8s://…"
    )
    ui_port: int = Field(
        4040, ge=0, le=65535, alias="LAKE_SPARK_UI_PORT", description="port of Spark's web page; 0: any"
    )
    driver_memory: Annotated[str, checked(memory_size)] = Field(
        "2g",
        alias="LAKE_DRIVER_MEMORY",
        description=f"heap of the Spark driver: a whole number with m or g, at least {LEAST_MEGABYTES}m",
    )
    jars: Folder = Field(
        default_factory=_cached_jars,
        alias="LAKE_JARS",
        description="folder of Spark's jars; `lakeproof setup` fills it",
    )
    without: Annotated[str, checked(shortcut_list)] | None = Field(
        None,
        alias="LAKE_SPARK_WITHOUT",
        description=f"shortcuts of Spark's start to disable: some of {', '.join(SHORTCUTS)}, or all",
    )
    python: str | None = Field(
        None,
        min_length=1,
        alias="LAKE_SPARK_PYTHON",
        description="Python of the executors on a cluster, a path on their machines; none: the same path as the "
        "driver's, or python3.11 with LAKE_SPARK_ENVIRONMENT, if that is the driver's version",
    )
    environment: Location | None = Field(
        None,
        alias="LAKE_SPARK_ENVIRONMENT",
        description="archive of Python packages for the executors; `lakeproof cluster pack` creates it",
    )
    shared: Annotated[str, checked(folder_list)] | None = Field(
        None,
        alias="LAKE_SPARK_SHARED",
        description="folders at the same path on the driver and all executors, separated by commas",
    )
    executors: int | None = Field(
        None,
        ge=1,
        alias="LAKE_EXECUTORS",
        description="executors to request from a cluster, and to wait for at the start; none: up to the cluster",
    )
    executor_cores: int | None = Field(
        None, ge=1, alias="LAKE_EXECUTOR_CORES", description="cores of an executor; none: the cluster's default"
    )
    executor_memory: Annotated[str, checked(memory_size)] = Field(
        "1g",
        alias="LAKE_EXECUTOR_MEMORY",
        description="heap of an executor, without its Python processes, which do the work",
    )
    executor_overhead: Annotated[str, checked(memory_size)] | None = Field(
        None,
        alias="LAKE_EXECUTOR_OVERHEAD",
        description="memory of an executor outside its heap, for its Python processes; none: 1g for each core",
    )

    def takes(self, shortcut: str) -> bool:
        """Whether Spark starts with one of the shortcuts."""
        return self.without is None or not {shortcut, "all"} & set(self.without.split(","))

    @property
    def is_remote(self) -> bool:
        """Whether tasks run on other machines than the driver's."""
        return not self.master.startswith("local")

    @property
    def python_of_executors(self) -> str:
        """The Python that runs tasks on the machines of a cluster."""
        of_version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.python or (of_version if self.environment else sys.executable)


class MaintenanceSettings(SettingsGroup, title="Maintenance", alias_generator=with_prefix("LAKE_MAINTENANCE_")):
    """How tables are maintained."""

    every_minutes: float = Field(
        15.0,
        gt=0,
        le=_LONGEST_HOURS * 60,
        description="time between two maintenances while a stream runs, with `consumer run --maintain`",
    )
    keep_hours: float = Field(
        1.0,
        gt=0,
        le=_LONGEST_HOURS,
        description="age at which snapshots expire, except the newest of each table",
    )
    orphan_hours: float = Field(
        72.0,
        ge=24,
        le=_LONGEST_HOURS,
        description="age at which files that no snapshot needs are removed, at least a day",
    )
    file_mib: int = Field(128, ge=1, le=4096, description="target size of compacted data files, in MiB")
    compact: bool = Field(True, description="whether data files are compacted")
    after_commits: int = Field(
        1_000, ge=1, description="number of commits to a table after which it is maintained at once while a stream runs"
    )
    after_files: int = Field(500, ge=1, description="the same for a number of small data files")
    after_mib: int = Field(1024, ge=1, description="the same for MiB in small data files")


class ErasureSettings(SettingsGroup, title="Erasure"):
    """What erasures record about their conditions."""

    secrets = ("key",)

    key: SecretStr | None = Field(
        None,
        min_length=16,
        alias="LAKE_ERASURE_KEY",
        description="secret for hashing the conditions of erasures: keep it, to check later what was erased",
    )


class MonitorSettings(SettingsGroup, title="Monitoring"):
    """What an application reports to other programs."""

    metrics: Annotated[str, checked(listen_address)] | None = Field(
        None,
        alias="LAKE_METRICS",
        description="address at which `consumer run` serves metrics for Prometheus, like 127.0.0.1:9108; port 0: any",
    )
    seconds: float = Field(
        15.0,
        ge=1,
        le=3600,
        alias="LAKE_METRICS_SECONDS",
        description="time between two measurements of tables, landing zone and topics, at least ten times the "
        "duration of one",
    )
    lineage: bool = Field(
        False,
        alias="LAKE_LINEAGE",
        description="whether `consumer run` sends OpenLineage events, to OPENLINEAGE_URL or as openlineage.yml says",
    )
    lineage_seconds: float = Field(
        60.0, ge=1, le=86_400, alias="LAKE_LINEAGE_SECONDS", description="time between two events of a running query"
    )
    lineage_namespace: str = Field(
        "lakeproof",
        min_length=1,
        alias="OPENLINEAGE_NAMESPACE",
        description="namespace of the queries in OpenLineage events",
    )


class ServeSettings(SettingsGroup, title="Serve", alias_generator=with_prefix("LAKE_SERVE_")):
    """Address and token of `reader serve`."""

    secrets = ("token",)

    host: str = Field("127.0.0.1", description="address that `reader serve` listens on")
    port: int = Field(8181, ge=0, le=65535, description="port that `reader serve` listens on; 0: any")
    token: Annotated[SecretStr, checked(secret_token)] | None = Field(
        None,
        description="token that clients of `reader serve` must send; none: it generates and prints one at each start",
    )
