"""Maintenance by other tools, as a separate program: plain Spark and PyIceberg, which know nothing of lakeproof."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession
from tests.chaos.lake import OF_BRONZE
from tests.operations import tables

from consumer.spark.session import start_session
from lakeproof.settings import load_settings

SPARK_JOBS = ("compact", "manifests", "expire", "old-orphans")
PYICEBERG_JOBS = ("expire-by-pyiceberg",)


class Maintainer:
    """Runs jobs on tables. Spark starts when it is first needed."""

    @cached_property
    def spark(self) -> SparkSession:
        """Plain Spark, with few shuffle partitions for small tables: with 200, a round would take minutes."""
        session = start_session(load_settings(), "maintenance")
        session.conf.set("spark.sql.shuffle.partitions", "2")
        return session

    def do(self, job: str, table: str) -> None:
        """Run a job, and report it in a line: ``done JOB TABLE FILES``, with the number of removed orphans."""
        if job == "expire-by-pyiceberg":
            tables.expire_all_but_last_by_pyiceberg(load_settings(), table)
            removed: object = None
        else:
            removed = _JOBS[job](self.spark, table)
        _say("done", job, table, len(removed) if isinstance(removed, list) else 0)


def _say(*words: object) -> None:
    typer.echo(" ".join(map(str, words)))


def _old_orphans(spark: SparkSession, table: str) -> list[str]:
    """Remove orphans as the documentation says: none of the last day."""
    yesterday = datetime.now(UTC) - timedelta(hours=25)
    options = f"older_than => TIMESTAMP '{yesterday:%F %T}', prefix_listing => true"
    found = spark.sql(f"CALL lake.system.remove_orphan_files(table => '{table}', {options})").collect()
    return [row[0] for row in found]


_JOBS: dict[str, Callable[[SparkSession, str], object]] = {
    "compact": tables.rewrite_data_files,
    "manifests": tables.rewrite_manifests,
    "expire": tables.expire_all_but_last,
    "old-orphans": _old_orphans,
    "orphans": tables.remove_orphan_files,
    "roll-back": tables.roll_back,
    "replace-by-itself": tables.replace_by_itself,
    "replace-by-nothing": tables.replace_by_nothing,
}

app = typer.Typer()


@app.command()
def sql(statement: str) -> None:
    """Run a statement in plain Spark."""
    start_session(load_settings(), "maintenance").sql(statement).collect()


@app.command()
def once(jobs: str, table: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Run comma-separated jobs on each table."""
    maintainer = Maintainer()
    for job in jobs.split(","):
        for name in table or OF_BRONZE:
            maintainer.do(job, name)


@app.command()
def loop(jobs: str, until: Path, names: list[str]) -> None:
    """Run jobs on tables again and again until a file exists. Failures are reported, and retried."""
    maintainer = Maintainer()
    for number in count(1):
        for job in jobs.split(","):
            for table in names:
                if until.exists():
                    return
                try:
                    maintainer.do(job, table)
                except Exception as error:  # noqa: BLE001 - a conflict with the consumer, which is theirs to try again
                    _say("failed", job, table, str(error).splitlines()[:2])
        _say("round", number)


if __name__ == "__main__":
    sys.exit(app())
