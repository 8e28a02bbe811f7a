"""The same backlog on one and two cores of one machine, and on one and two workers of a cluster."""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tests.cluster import Cluster
from tests.servers import PostgresServer

from benchmarks.harness import Goal, Options, Report, Sample, Side, Table, machine, measure, module
from benchmarks.inputs import STREAM, Input, land
from benchmarks.minio import Minio, run_minio

_BUCKET, _LANDING = "bench", "landing"
MASTERS = {"local[1]": 1, "local[2]": 2, "one worker": 1, "two workers": 2}
"""Cores by side."""
_PARTS = {"driver": "driver's Python", "jvm": "driver's JVM", "executors": "JVMs of executors", "tasks": "tasks"}

ABOUT = [
    "Files of 1,000 records, 5 % of them bad and 5 % duplicates, lie in MinIO; catalog and landing log are in "
    "Postgres. Bronze, silver and gold follow one after another, each until it has all rows. Workers have one core "
    "each, and see neither the driver's files nor its Python (`tests/cluster.py`). **All processes share the two cores "
    "of one machine**, MinIO and Postgres as well: a second worker brings no processor, so *efficiency* is less than "
    "on two machines. *Processor* is what bronze, silver and gold took; *efficiency* is rows/s for each core, over "
    "that of the same kind with one core.",
]


def run(options: Options) -> Report:
    """Run all sides over the same input."""
    about_machine = machine()
    landed = land(Input(options.files, invalid=0.05, duplicates=0.05, days=False))
    samples: list[Sample] = []
    with run_minio() as minio, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        minio.make_bucket(_BUCKET)
        minio.upload(_BUCKET, f"{_LANDING}/{STREAM}", landed.folder, landed.paths())
        keys = {name: value for name, value in minio.environment().items() if name.endswith(("_ID", "_KEY"))}
        with PostgresServer(Path(folder) / "postgres") as postgres, Cluster(Path(folder) / "cluster", keys) as cluster:
            for _ in range(options.repeat):
                samples += measure(list(_sides(minio, postgres, cluster)), 1)
    by_side = {name: [sample for sample in samples if sample.side == name] for name in MASTERS}
    return Report(
        name="cluster",
        title="A backlog on cores and workers",
        about=ABOUT,
        goals=[
            Goal(f"processor time of {more} over {one}", _cpu(by_side[more]) / _cpu(by_side[one]), at_most=1.3)
            for one, more in (("local[1]", "local[2]"), ("one worker", "two workers"))
        ],
        tables=[_summary(by_side), _phases(by_side)],
        machine=about_machine,
        options={"files": options.files, "runs_of_each_side": options.repeat},
        raw=[sample.as_dict() for sample in samples],
    )


def _sides(minio: Minio, postgres: PostgresServer, cluster: Cluster) -> Iterable[Side]:
    on_cluster = {
        "LAKE_SPARK_MASTER": cluster.master.uri,
        "LAKE_SPARK_PYTHON": cluster.python,
        "LAKE_EXECUTOR_CORES": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "BENCH_WORKERS": ",".join(str(worker.process.pid) for worker in cluster.workers),
    }
    for name, cores in MASTERS.items():
        database = postgres.new_database()
        own = {"LAKE_SPARK_MASTER": name} if name.startswith("local") else on_cluster | {"LAKE_EXECUTORS": str(cores)}
        lake = minio.environment() | {
            "LAKE_LANDING": f"s3://{_BUCKET}/{_LANDING}",
            "LAKE_WAREHOUSE": f"s3://{_BUCKET}/runs/{{run}}/warehouse",
            "LAKE_CHECKPOINTS": f"s3://{_BUCKET}/runs/{{run}}/checkpoints",
            "LAKE_CATALOG_URI": database,
            "LAKE_LANDING_LOG_URI": database,
        }
        yield Side(name, module("benchmarks.sides.phases"), lake | own)


def _cpu(runs: Sequence[Sample]) -> float:
    """Return the processor seconds of bronze, silver and gold."""
    return median(sum(sum(each["cpu"].values()) for each in run.figures["phases"][1:]) for run in runs)


def _summary(by_side: Mapping[str, Sequence[Sample]]) -> Table:
    rates = {name: median(each.figures["bronze"] / each.seconds for each in runs) for name, runs in by_side.items()}
    rows = []
    for name, runs in by_side.items():
        alone = "local[1]" if name.startswith("local") else "one worker"
        efficiency = rates[name] / rates[alone] / MASTERS[name]
        counts = [f"{runs[0].figures[table]:,}" for table in ("bronze", "silver", "gold")]
        row = [name, f"{median(run.seconds for run in runs):.1f}", f"{rates[name]:,.0f}", f"{efficiency:.0%}"]
        rows.append([*row, f"{_cpu(runs):.1f}", f"{median(run.peak_rss_mib for run in runs):,.0f}", *counts])
    columns = ["on", "seconds", "rows/s", "efficiency", "processor, s", "driver's tree, peak MiB"]
    return Table("From files to gold", [*columns, "bronze rows", "silver rows", "gold rows"], rows)


def _phases(by_side: Mapping[str, Sequence[Sample]]) -> Table:
    rows = []
    for name, runs in by_side.items():
        for position, first in enumerate(runs[0].figures["phases"]):
            of_phase = [run.figures["phases"][position] for run in runs]
            elapsed = [_cell(of_phase, key) for key in ("seconds", "compute", "commit")]
            cpu = [f"{median(each['cpu'].get(part, 0.0) for each in of_phase):.1f}" for part in _PARTS]
            rows.append([name, first["phase"], str(first["micro_batches"] or ""), *elapsed, *cpu])
    columns = ["on", "phase", "micro-batches", "seconds", "of them compute", "commit"]
    return Table("Processor seconds by phase and process", [*columns, *_PARTS.values()], rows)


def _cell(of_phase: Sequence[Mapping[str, Any]], key: str) -> str:
    return f"{median(each[key] for each in of_phase):.1f}" if key in of_phase[0] else ""
