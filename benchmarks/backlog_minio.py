"""A backlog in MinIO: lakeproof and the usual consumer."""

from benchmarks.backlog import truth
from benchmarks.compare import OURS, PERSISTED, USUAL, Comparison, bars
from benchmarks.harness import Options, Report, Side, machine, measure, medians, module
from benchmarks.inputs import STREAM, Input, land
from benchmarks.minio import Minio, run_minio

_BUCKET = "bench"

ABOUT = [
    "As [the backlog on a local disk](backlog.md), but landing zone, warehouse and checkpoints lie in MinIO, which "
    "runs on the same cores; its data is on the local disk. The catalog's database stays a local file."
]


def run(options: Options) -> Report:
    """Run both sides over compact and spaced input, with 5 % bad records and 10 % of the files cut short."""
    about_machine = machine()
    comparisons, raw = [], {}
    with run_minio() as minio:
        minio.make_bucket(_BUCKET)
        for style in ("compact", "spaced"):
            backlog = Input(options.files, style=style, invalid=0.05, corrupt=0.1)
            landed = land(backlog)
            minio.upload(_BUCKET, f"{style}/{STREAM}", landed.folder, landed.paths())
            samples = measure(_sides(minio, style), options.repeat)
            comparisons.append(Comparison(backlog.name, truth(landed), medians(samples)))
            raw[backlog.name] = [sample.as_dict() for sample in samples]
    return Report(
        name="backlog-minio",
        title="Backlog in MinIO",
        about=ABOUT,
        goals=[goal for comparison in comparisons for goal in comparison.goals()],
        tables=[comparison.table() for comparison in comparisons],
        machine=about_machine,
        options={"files": options.files, "runs_of_each_side": options.repeat},
        bars=[bars(f"{options.files:,} files of 1,000 records, in MinIO", comparisons)],
        raw=raw,
    )


def _sides(minio: Minio, landing: str) -> list[Side]:
    environment = minio.environment() | {
        "LAKE_LANDING": f"s3://{_BUCKET}/{landing}",
        "LAKE_WAREHOUSE": f"s3://{_BUCKET}/runs/{{run}}/warehouse",
        "LAKE_CHECKPOINTS": f"s3://{_BUCKET}/runs/{{run}}/checkpoints",
    }
    return [
        Side(OURS, module("benchmarks.sides.ours"), environment),
        Side(PERSISTED, module("benchmarks.sides.usual", "--persisted"), environment),
        Side(USUAL, module("benchmarks.sides.usual"), environment),
    ]
