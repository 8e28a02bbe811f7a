"""Make a small lake with the current version, to be kept: later versions must be able to continue it.

``python -m tests.compatibility.make_lake tests/compatibility/lakes/0.1.tar.gz``. The lake is in a bucket with a fixed
name, since Iceberg's metadata has absolute paths. The archive has the bucket's objects and the databases.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

from tests.servers import MinioServer

from lakeproof.storage.s3 import s3_client

BUCKET = "lakeproof-kept"
DATABASES = ("catalog.db", "landing-log.db")
SEEDS = (("events", 1), ("events", 2), ("events", 3))


def environment(home: Path, servers: dict[str, str]) -> dict[str, str]:
    """Return settings of the lake for programs of any version."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("LAKE_", "AWS_"))}
    places = {f"LAKE_{name.upper()}": f"s3://{BUCKET}/{name}" for name in ("landing", "warehouse", "checkpoints")}
    root = Path(__file__).parents[2]
    return (
        own
        | servers
        | places
        | {
            "LAKE_HOME": str(home),
            "LAKE_CONTRACTS": str(root / "contracts"),
            "LAKE_JARS": str(root / "target/jars/spark"),
            "LAKE_SPARK_UI_PORT": "0",
        }
    )


def main(archive: Path) -> None:
    """Land batches, consume some in two micro-batches, and archive the result."""
    with tempfile.TemporaryDirectory() as folder, MinioServer(Path(folder) / "minio") as server:
        home = Path(folder) / "lake"
        client = s3_client(server.minio.settings())
        client.create_bucket(Bucket=BUCKET)
        variables = environment(home, server.minio.environment())

        def run(*command: str) -> None:
            subprocess.run([sys.executable, "-m", *command], cwd=folder, env=variables, check=True)

        for stream, seed in SEEDS:
            faults = (
                "--corruption-chance",
                "0.3",
                "--invalid-schema-chance",
                "0.3",
                "--start",
                f"2026-11-2{seed}T00:00:00Z",
            )
            run("producer", stream, "--batches", "4", "--batch-size", "5", "--seed", str(seed), *faults)
            if seed != SEEDS[-1][1]:  # the last batches are left for the version that continues the lake
                run("consumer", "run", stream, "--available-now")
        run("reader", "verify")
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive, "w:gz") as kept:
            for name in DATABASES:
                kept.add(home / name, name)
            listed = [each["Key"] for each in client.list_objects_v2(Bucket=BUCKET)["Contents"]]
            for key in listed:
                content = client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
                about = tarfile.TarInfo(f"objects/{key}")
                about.size = len(content)
                kept.addfile(about, BytesIO(content))


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
