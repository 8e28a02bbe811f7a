"""Judge files in Spark, and write the tables' data files in the same pass.

Each task reads its files, judges their units and writes what came of them; only names of data files and counts travel
through the JVM. So a unit is judged once, and nothing is kept or computed a second time for the second table.
"""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from consumer.bronze.data_files import DataFile, DataFileWriter, Target
from consumer.bronze.judge import Judge
from consumer.bronze.rows import Drift, MicroBatch, Outcome, bronze_rows, dead_letter_rows, drift_sets, reason_sets
from consumer.sources.files import balanced_groups, envelopes
from consumer.sources.landing_log import LandedFile
from lakeproof.reasons import Reason
from lakeproof.settings import S3Settings
from lakeproof.storage import open_storage

# Several groups of files for each core, so that one that takes longer does not leave the others idle; but none that is
# smaller than this, since each makes files of its own in the tables.
_GROUPS_PER_CORE = 4
_BYTES_PER_GROUP = 8 * 1024**2


@dataclass(frozen=True)
class Task:
    """What a task has to know beside its files.

    Parameters
    ----------
    batch
        The micro-batch.
    bronze, dead_letters
        Where to write data files; None for a table that has this micro-batch already.
    s3
        How to reach S3.
    """

    batch: MicroBatch
    bronze: Target | None
    dead_letters: Target | None
    s3: S3Settings


@dataclass
class Written:
    """What tasks made of their files; no table knows of it yet.

    Parameters
    ----------
    bronze, dead_letters
        Data files.
    outcomes
        How many units of each source had which set of reasons.
    drift
        How many values of the rows of each source in bronze were rescued or discarded, by set of reasons.
    changed
        Sources that are not what the landing log lists any more, and were left out.
    """

    bronze: list[DataFile] = field(default_factory=list)
    dead_letters: list[DataFile] = field(default_factory=list)
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    drift: Counter[Drift] = field(default_factory=Counter)
    changed: list[str] = field(default_factory=list)


def warm_up(spark: SparkSession) -> None:
    """Start the cluster's Python workers and let them import all that judging takes: over a second, once for each.

    To be called beside other work, such as the planning of a query. What goes wrong here will go wrong again in that.
    """
    cores = spark.sparkContext.defaultParallelism
    with suppress(PySparkException, Py4JError):
        spark.sparkContext.parallelize(range(cores), cores).foreach(_nothing)


def write_judged(spark: SparkSession, files: list[LandedFile], task: Task) -> Written:
    """Judge `files`, spread over the cluster by their size, and write the data files.

    Where bronze has the micro-batch already, a file that changed since then is left out: what it held was judged, and
    is not there to be judged again. Otherwise it is a dead letter.
    """
    wanted = 1 + sum(file.size for file in files) // _BYTES_PER_GROUP
    groups = balanced_groups(files, min(wanted, len(files), _GROUPS_PER_CORE * spark.sparkContext.defaultParallelism))
    whole = Written()
    if not groups:
        return whole
    # An RDD, not a DataFrame: a task takes files and gives counts, so there are no rows to plan, encode and decode for.
    for part in spark.sparkContext.parallelize(groups, len(groups)).map(partial(write_group, task=task)).collect():
        whole.bronze += part.bronze
        whole.dead_letters += part.dead_letters
        whole.outcomes.update(part.outcomes)
        whole.drift.update(part.drift)
        whole.changed += part.changed
    return whole


def write_group(files: list[LandedFile], task: Task) -> Written:
    """Judge files of one storage, one after the other, and write the data files."""
    judge = Judge(task.batch.contract)
    bronze = _writer(task.bronze, task.s3)
    dead_letters = _writer(task.dead_letters, task.s3)
    written = Written()
    for envelope in envelopes(files, open_storage(files[0].uri, task.s3)):
        if envelope.failure is None:
            judged = judge.judge(envelope.value)
        elif envelope.failure[0] == Reason.CHANGED and task.bronze is None:
            written.changed.append(envelope.source)
            continue
        else:
            judged = judge.refuse(*envelope.failure, envelope.value)
        for units in judged:
            good = bronze_rows(units, envelope, task.batch)
            bad = dead_letter_rows(units, envelope, task.batch)
            if good.num_rows:
                written.outcomes[envelope.source, None] += good.num_rows
            written.outcomes.update((envelope.source, reasons) for reasons in reason_sets(bad))
            written.drift.update((envelope.source, reasons) for reasons in drift_sets(units, task.batch))
            if bronze:
                bronze.write(good)
            if dead_letters:
                dead_letters.write(bad)
    written.bronze = bronze.close() if bronze else []
    written.dead_letters = dead_letters.close() if dead_letters else []
    return written


def _nothing(_: int) -> None:
    """Do nothing. Spark sends a function's name, not its code: the worker imports this module to find it."""


def _writer(target: Target | None, s3: S3Settings) -> DataFileWriter | None:
    return DataFileWriter(target, open_storage(target.folder, s3)) if target else None
