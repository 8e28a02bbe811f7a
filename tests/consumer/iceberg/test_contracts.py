"""Private interfaces that consumer/iceberg relies on: Iceberg's classes in the JVM, and private parts of PyIceberg.

Each one has a test. If a test fails after an upgrade, its message names the module to look at.
"""

import json
import pickle
import threading
import uuid
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError, Py4JJavaError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import AlwaysTrue, GreaterThan, GreaterThanOrEqual
from pyiceberg.table import Table
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession
from tests.consumer.iceberg.upserts import Upserts

from consumer.iceberg.append import described
from consumer.iceberg.jvm import exception_class, first_cause, is_cancelled, is_invalid, java_class, static_method

SHADED = "org.apache.iceberg.shaded.org.apache.parquet"
CLASSES = {
    "append.py": {
        "org.apache.iceberg.DataFiles": ["builder"],
        "org.apache.iceberg.DataFiles$Builder": ["withInputFile", "withMetrics", "withPartitionPath", "build"],
        "org.apache.iceberg.MetricsConfig": ["forTable"],
        "org.apache.iceberg.PartitionSpec": ["builderFor", "fields", "specId"],
        "org.apache.iceberg.PartitionSpec$Builder": ["day", "build"],
        "org.apache.iceberg.SchemaParser": ["fromJson", "toJson"],
        "org.apache.iceberg.BaseTransaction": ["startMetadata", "currentMetadata", "underlyingOps", "newRowDelta"],
        "org.apache.iceberg.TableMetadata": ["properties", "currentSnapshot", "snapshot"],
        "org.apache.iceberg.TableMetadataParser": ["toJson"],
        "org.apache.iceberg.TableOperations": ["commit"],
        "org.apache.iceberg.catalog.Catalog": ["tableExists", "createTable"],
        "org.apache.iceberg.catalog.TableIdentifier": ["parse"],
        "org.apache.iceberg.exceptions.CommitFailedException": [],
        "org.apache.iceberg.exceptions.NotFoundException": [],
        "org.apache.iceberg.parquet.ParquetUtil": ["footerMetrics"],
        f"{SHADED}.ParquetReadOptions": ["builder"],
        f"{SHADED}.conf.PlainParquetConfiguration": [],
        f"{SHADED}.format.converter.ParquetMetadataConverter": ["readParquetMetadata"],
        "org.apache.iceberg.spark.Spark3Util": ["loadIcebergCatalog", "loadIcebergTable"],
        "org.apache.iceberg.spark.SparkSchemaUtil": ["convert"],
        "org.apache.iceberg.util.SnapshotUtil": ["isAncestorOf"],
        "java.io.ByteArrayInputStream": [],
        "java.io.FileNotFoundException": [],
        "java.nio.file.NoSuchFileException": [],
        "java.util.stream.Stream": ["empty"],
    },
    "expire.py": {
        "org.apache.iceberg.BaseTable": ["refs", "snapshots", "expireSnapshots"],
        "org.apache.iceberg.ExpireSnapshots": ["apply", "expireOlderThan", "retainLast", "commit"],
        "org.apache.iceberg.SnapshotRef": ["isBranch", "maxRefAgeMs", "snapshotId"],
    },
    "growth.py": {
        "org.apache.iceberg.BaseTable": ["operations"],
        "org.apache.iceberg.TableMetadataParser": ["toJson"],
    },
    "rewrite.py": {
        "org.apache.iceberg.BaseTable": ["manageSnapshots", "newScan", "refresh", "refs", "snapshot"],
        "org.apache.iceberg.BaseTransaction": ["manageSnapshots", "newRewrite", "updateProperties"],
        "org.apache.iceberg.ContentScanTask": ["file"],
        "org.apache.iceberg.DataFile": ["fileSizeInBytes", "location", "recordCount"],
        "org.apache.iceberg.FileScanTask": ["deletes"],
        "org.apache.iceberg.ManageSnapshots": ["createBranch", "removeBranch", "commit"],
        "org.apache.iceberg.RewriteFiles": ["addFile", "dataSequenceNumber", "deleteFile", "validateFromSnapshot"],
        "org.apache.iceberg.actions.BinPackRewriteFilePlanner": ["init", "plan"],
        "org.apache.iceberg.actions.FileRewritePlan": ["groups"],
        "org.apache.iceberg.actions.RewriteFileGroup": ["inputFileNum", "inputFilesSizeInBytes"],
        "org.apache.iceberg.exceptions.ValidationException": [],
        "org.apache.iceberg.relocated.com.google.common.collect.Lists": ["newArrayList"],
        "org.apache.iceberg.spark.ScanTaskSetManager": ["get", "removeTasks", "stageTasks"],
        "org.apache.iceberg.spark.SparkTableCache": ["add", "get", "remove"],
        "org.apache.iceberg.util.ContentFileUtil": ["isDV"],
        "java.util.ArrayList": ["add"],
    },
    "newest.py": {"org.apache.iceberg.Snapshot": ["snapshotId", "parentId", "sequenceNumber", "summary"]},
    "upsert.py": {
        "com.google.common.base.Functions": ["forMap"],
        "java.util.HashMap": ["put"],
        "org.apache.iceberg.FileFormat": [],
        "org.apache.iceberg.RowDelta": [
            "addRows",
            "addDeletes",
            "removeRows",
            "removeDeletes",
            "validateFromSnapshot",
        ],
        "org.apache.iceberg.data.BaseDeleteLoader": ["loadPositionDeletes"],
        "org.apache.iceberg.deletes.BaseDVFileWriter": ["delete", "close", "result"],
        "org.apache.iceberg.deletes.Deletes": ["toPositionIndex"],
        "org.apache.iceberg.expressions.Expressions": ["or", "and", "alwaysFalse", "greaterThanOrEqual", "lessThan"],
        "org.apache.iceberg.io.CloseableIterable": ["of"],
        "org.apache.iceberg.io.DeleteWriteResult": ["deleteFiles", "rewrittenDeleteFiles"],
        "org.apache.iceberg.io.OutputFileFactory": ["builderFor"],
        "org.apache.iceberg.relocated.com.google.common.primitives.Longs": ["asList"],
    },
    "jvm.py": {
        "java.nio.ByteBuffer": ["wrap", "asLongBuffer"],
        "java.io.IOException": [],
        "java.sql.SQLException": [],
        "org.apache.iceberg.exceptions.CommitStateUnknownException": [],
        "org.apache.iceberg.exceptions.RESTException": [],
        "software.amazon.awssdk.core.exception.SdkException": [],
        "java.lang.IllegalArgumentException": [],
        "org.apache.spark.SparkException": ["getCondition"],
        "org.apache.spark.api.python.PythonRDD": ["collectAndServe"],
        "org.apache.spark.api.python.PythonUtils": [],
        "org.apache.spark.api.python.SimplePythonFunction": [],
        "org.apache.spark.sql.classic.SparkSession": ["cloneSession", "setActiveSession"],
        "org.apache.spark.sql.streaming.Trigger": ["RealTime"],
    },
}
"""Classes by the module that uses them, with the methods that it calls."""
EACH_CLASS = [(module, name) for module, classes in CLASSES.items() for name in classes]


@pytest.mark.spark
@pytest.mark.parametrize(("module", "name"), EACH_CLASS)
def test_a_class_of_the_jvm_has_the_methods(spark: SparkSession, module: str, name: str) -> None:
    loader = java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader()
    try:
        found = java_class(spark, "java.lang.Class").forName(name, False, loader)
    except Py4JJavaError as error:
        pytest.fail(f"consumer/iceberg/{module} relies on {name}: {first_cause(error)}", pytrace=False)
    methods = {method.getName() for method in found.getMethods()}
    missing = set(CLASSES[module][name]) - methods
    assert not missing, f"consumer/iceberg/{module} relies on methods of {name}"


@pytest.mark.spark
def test_methods_that_py4j_may_not_find_are_called_without_a_look(spark: SparkSession) -> None:
    """Py4J takes the first method of a name, in any order, so a name should not have static and other methods."""
    modifiers = java_class(spark, "java.lang.reflect.Modifier")
    loader = java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader()
    ambiguous = set()
    for name, methods in {name: methods for each in CLASSES.values() for name, methods in each.items()}.items():
        forms = defaultdict[str, set[bool]](set)
        for method in java_class(spark, "java.lang.Class").forName(name, False, loader).getMethods():
            forms[method.getName()].add(modifiers.isStatic(method.getModifiers()))
        ambiguous |= {f"{name}.{method}" for method in methods if len(forms[method]) > 1}
    assert ambiguous == {"org.apache.iceberg.spark.SparkTableCache.get"}  # by `static_method`


@pytest.mark.spark
def test_jvm_py_calls_a_static_method_whatever_other_method_has_its_name(spark: SparkSession) -> None:
    """Relies on ``_gateway_client``; ``Integer`` has `hashCode` in both forms."""
    with suppress(Py4JError):  # with some orders of methods, Py4J finds it
        assert java_class(spark, "java.lang.Integer").hashCode(3) == 3
    assert static_method(spark, "java.lang.Integer", "hashCode")(3) == 3
    assert static_method(spark, "org.apache.iceberg.spark.SparkTableCache", "get")().size() == 0


@pytest.mark.spark
def test_jvm_py_finds_a_class_by_its_full_name_in_one_step(spark: SparkSession) -> None:
    """Relies on ``SparkSession._jvm``; a package would be taken for a name that does not exist."""
    assert isinstance(java_class(spark, "org.apache.iceberg.SchemaParser"), JavaClass)


@pytest.mark.spark
def test_jvm_py_reaches_the_gateway_and_makes_arrays_of_primitives(spark: SparkSession) -> None:
    """Relies on ``SparkContext._gateway``."""
    from consumer.iceberg.jvm import long_array

    assert list(long_array(spark, bytes(7) + b"\x05" + b"\xff" * 8)) == [5, -1]


@pytest.mark.spark
def test_jvm_py_clones_a_session_with_settings_of_its_own(spark: SparkSession) -> None:
    """Relies on ``SparkSession._jsparkSession``: a clone starts with the current settings, and then has its own."""
    from consumer.iceberg.jvm import activate, cloned_session

    spark.conf.set("spark.lakeproof.contract", "before")
    clone = cloned_session(spark)
    clone.conf.set("spark.lakeproof.own", "clone")
    assert clone.conf.get("spark.lakeproof.contract") == "before"
    assert spark.conf.get("spark.lakeproof.own", None) is None
    spark.conf.unset("spark.lakeproof.contract")
    active = java_class(spark, "org.apache.spark.sql.classic.SparkSession").getActiveSession
    try:
        activate(clone)
        assert active().get().equals(clone._jsparkSession)
    finally:
        activate(spark)


@pytest.mark.spark
def test_jvm_py_triggers_in_real_time(spark: SparkSession) -> None:
    """Relies on ``DataStreamWriter._jwrite``."""
    from consumer.iceberg.jvm import trigger_in_real_time

    writer = spark.readStream.format("rate").load().writeStream.format("noop").outputMode("update")
    trigger_in_real_time(writer, spark, "20 seconds")
    with pytest.raises(PySparkException, match=r"noop.* is not in the sink allowlist for Real-Time Mode"):
        writer.start().stop()


@pytest.mark.spark
def test_jvm_py_finds_the_jvms_exception_in_pysparks(spark: SparkSession) -> None:
    """Relies on ``CapturedException._origin``."""
    from consumer.iceberg.jvm import _exception_classes

    with pytest.raises(CapturedException) as caught:
        spark.sql("select * from lake.bronze.missing")
    assert "org.apache.spark.sql.AnalysisException" in list(_exception_classes(caught.value))


@pytest.mark.spark
def test_append_py_is_refused_by_type_where_the_state_has_changed(spark: SparkSession) -> None:
    """Only ``CommitFailedException`` says that a swap did not happen; and ``commit`` swaps once."""
    upserts = Upserts(spark)
    table = upserts.open().loaded
    first, second = (table.newTransaction() for _ in range(2))
    for transaction in (first, second):
        transaction.updateProperties().set("writer", str(transaction.hashCode())).commit()
    first.underlyingOps().commit(first.startMetadata(), first.currentMetadata())
    with pytest.raises(Py4JJavaError) as caught:
        second.underlyingOps().commit(second.startMetadata(), second.currentMetadata())
    assert exception_class(caught.value) == "org.apache.iceberg.exceptions.CommitFailedException"
    table.refresh()
    assert table.properties().get("writer") == str(first.hashCode())


@pytest.mark.spark
def test_append_py_is_refused_by_type_where_the_last_commit_is_in_the_future(spark: SparkSession) -> None:
    """``TableMetadata`` is built with the time of the commit; an hour before the last one is an invalid argument."""
    upserts = Upserts(spark)
    table = upserts.open()
    metadata = table.metadata()
    metadata["last-updated-ms"] += 3_600_000
    parser = java_class(spark, "org.apache.iceberg.TableMetadataParser")
    operations = table.loaded.operations()
    operations.commit(operations.current(), parser.fromJson(json.dumps(metadata)))
    table.loaded.refresh()
    with pytest.raises((Py4JJavaError, CapturedException)) as caught:
        table.loaded.updateProperties().set("some", "property").commit()
    assert is_invalid(caught.value)


@pytest.mark.spark
def test_append_py_knows_how_a_commit_names_its_manifests(spark: SparkSession) -> None:
    """Relies on ``SnapshotProducer.newManifestOutputFile``: ``…-m0.avro``, the merged manifest after its parts."""
    upserts = Upserts(spark, **{"commit.manifest.min-count-to-merge": "2"})
    for files in [upserts.files("x", number) for number in range(2)]:
        transaction = upserts.open().loaded.newTransaction()
        update = transaction.newAppend()
        for file in described(upserts.open(), files):
            update.appendFile(file)
        update.commit()
        transaction.underlyingOps().commit(transaction.startMetadata(), transaction.currentMetadata())
    table = upserts.open().loaded
    snapshot = table.currentSnapshot()
    assert snapshot.summary().get("manifests-replaced") not in (None, "0"), "append.py reads it from the summary"
    (manifest,) = snapshot.allManifests(table.io())
    parts = sorted(name for name in upserts.metadata_files() if "-m" in name)
    assert Path(manifest.path()).name.endswith("-m1.avro")
    assert sorted(name.rpartition("-m")[2] for name in parts) == ["0.avro", "0.avro", "1.avro"]


@pytest.mark.spark
def test_upsert_py_passes_large_numbers_as_longs_and_small_ones_not(spark: SparkSession) -> None:
    """Py4J chooses the type by size; Iceberg compares a timestamp with a Long only."""
    expressions = java_class(spark, "org.apache.iceberg.expressions.Expressions")
    literal = expressions.lessThan("at", 1 << 31).literal()
    assert literal.getClass().getSimpleName() == "LongLiteral"
    assert expressions.lessThan("at", 1).literal().getClass().getSimpleName() == "IntegerLiteral"


@pytest.mark.spark
def test_tasks_py_plans_a_map_over_arrow_without_pandas(spark: SparkSession) -> None:
    """Relies on ``DataFrame._jdf``, ``Column._jc`` and ``pyspark.sql.types._parse_datatype_string``."""
    from consumer.iceberg.tasks import map_in_arrow

    mapped = map_in_arrow(spark.range(3), iter, "id bigint")
    assert mapped.dtypes == [("id", "bigint")]
    assert sorted(row.id for row in mapped.collect()) == [0, 1, 2]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Create a PyIceberg table with two files: n of 0 to 2, and 3 to 5."""
    catalog = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace("silver")
    made = catalog.create_table(f"silver.t{uuid.uuid4().hex}", pa.schema([("n", pa.int64())]))
    for first in (0, 3):
        made.append(pa.table({"n": [first, first + 1, first + 2]}))
    return made


def test_scan_py_plans_with_manifests_that_remember_their_entries(table: Table) -> None:
    """Relies on ``ManifestGroupPlanner``, which uses attributes of a manifest, and ``fetch_manifest_entry``."""
    from consumer.iceberg.scan import plan

    wanted = {task.file.file_path for task in table.scan().plan_files()}
    for _ in range(2):
        assert {task.file.file_path for task in plan(table, "t", {"n": "n"}).files} == wanted


def test_scan_py_replaces_how_residuals_are_built(table: Table) -> None:
    """Relies on ``ManifestGroupPlanner._build_residual_evaluator``, which the planner calls for each file."""
    from pyiceberg.table import ManifestGroupPlanner

    planner: Any = ManifestGroupPlanner(table.metadata, table.io, AlwaysTrue())
    asked = []
    build = planner._build_residual_evaluator
    planner._build_residual_evaluator = lambda spec_id: asked.append(spec_id) or build(spec_id)
    snapshot = table.current_snapshot()
    assert snapshot
    assert len(list(planner.plan_files(snapshot.manifests(table.io)))) == 2
    assert asked, "consumer/iceberg/scan.py relies on the planner asking its own _build_residual_evaluator"


def test_scan_py_knows_files_of_which_all_rows_match(table: Table) -> None:
    """Relies on ``pyiceberg.expressions.visitors._StrictMetricsEvaluator``."""
    from pyiceberg.expressions.visitors import ROWS_MUST_MATCH, _StrictMetricsEvaluator

    strict = _StrictMetricsEvaluator(table.schema(), GreaterThan("n", 2)).eval
    found = [strict(task.file) == ROWS_MUST_MATCH for task in table.scan().plan_files()]
    assert sorted(found) == [False, True]


def test_scan_py_reads_a_file_in_its_order_and_without_its_deletes_unless_asked(table: Table) -> None:
    """Relies on ``ArrowScan.to_record_batches``: positions in deletion vectors are positions in its rows."""
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.table import FileScanTask

    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    found = [
        [number for batch in scan.to_record_batches([FileScanTask(task.file)]) for number in batch["n"].to_pylist()]
        for task in table.scan().plan_files()
    ]
    assert sorted(found) == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.spark
def test_scan_py_reads_deletion_vectors_of_iceberg(spark: SparkSession) -> None:
    """Relies on ``pyiceberg.table.deletion_vector`` and ``pyiceberg.table.puffin``."""
    from urllib.parse import urlsplit

    from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
    from pyiceberg.table.puffin import PuffinFile

    upserts = Upserts(spark)
    upserts.append(0, "old", 1, 2, 3)
    upserts.upsert(1, "new", 2)
    files = spark.table(f"lake.{upserts.name}.files").where("file_format = 'PUFFIN'").collect()
    (vector,) = deletion_vectors_from_puffin_file(PuffinFile(Path(urlsplit(files[0].file_path).path).read_bytes()))
    assert vector.to_vector().to_pylist() == [1]
    data = {row.file_path for row in spark.table(f"lake.{upserts.name}.data_files").collect()}
    assert vector.referenced_data_file in data


def test_nulls_py_replaces_the_class_that_projects_columns() -> None:
    import pyiceberg.io.pyarrow as arrow

    assert "ArrowProjectionVisitor" in arrow._to_requested_schema.__code__.co_names
    assert {"list", "map"} <= vars(arrow.ArrowProjectionVisitor).keys()


def test_scan_py_takes_the_history_out_of_metadata(table: Table) -> None:
    """PyIceberg's metadata is a Pydantic model; a scan reads the same rows without the history."""
    bare = table.metadata.model_copy(
        update={"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}, "properties": {}}
    )
    assert bare.schema() == table.schema()
    assert not bare.snapshots


def test_scan_py_parses_a_filter_of_text() -> None:
    from consumer.iceberg.scan import of_micro_batches

    assert str(GreaterThanOrEqual("_micro_batch_id", 1)) in str(of_micro_batches(1, 2))


def test_scan_py_pickles_a_file_of_a_scan(table: Table) -> None:
    """``FileScanTask`` is sent to tasks, with its file, its deletes and its residual."""
    task = next(iter(table.scan().plan_files()))
    again = pickle.loads(pickle.dumps(task))
    assert (again.file.file_path, again.file.record_count) == (task.file.file_path, task.file.record_count)


@pytest.mark.spark
def test_rewrite_py_reads_the_files_that_it_stages_and_no_others(spark: SparkSession) -> None:
    """Relies on ``ScanTaskSetManager`` and ``SparkTableCache``, which Iceberg's own action uses to read its input."""
    from consumer.iceberg.rewrite import _staged

    upserts = Upserts(spark)
    for number in range(3):
        upserts.append(number, "x", number)
    table = upserts.open()
    planned = table.loaded.newScan().planFiles()
    task = planned.iterator().next()
    planned.close()
    with _staged(table, [task]) as rows:
        found = [row["id"] for row in rows.select("id").collect()]
    assert found == pq.read_table(task.file().location().removeprefix("file:"), columns=["id"])["id"].to_pylist()
    assert len(found) == 1


@pytest.mark.spark
def test_jvm_py_tells_cancelled_jobs_from_those_that_failed(spark: SparkSession) -> None:
    """Relies on the condition of ``SparkThrowable``: the end of a stream cancels its maintenance."""
    context, has_ended = spark.sparkContext, threading.Event()

    def cancel() -> None:
        while not has_ended.wait(0.1):
            context.cancelJobsWithTag("slow")

    thread = threading.Thread(target=cancel)
    thread.start()
    context.addJobTag("slow")
    try:
        with pytest.raises((Py4JJavaError, CapturedException)) as cancelled:
            spark.range(1 << 50).selectExpr("sum(id % 7)").collect()
    finally:
        has_ended.set()
        context.removeJobTag("slow")
        thread.join()
    assert is_cancelled(cancelled.value)
    with pytest.raises((Py4JJavaError, CapturedException)) as failed:
        spark.range(1).selectExpr("raise_error('no')").collect()
    assert not is_cancelled(failed.value)
