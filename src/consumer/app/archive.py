"""Archive the JVM classes that a run loads (class data sharing), so that later starts take about half the time."""

import json
import tempfile
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from consumer.app.application import Query, run_queries
from consumer.app.landing import BronzeQuery
from consumer.app.query import LayerQuery
from consumer.app.session import PLANNING_ONLY, class_archive, end_session, start_session
from consumer.app.trigger import Trigger
from consumer.asked import Asked
from consumer.layers.registry import layers_of
from lakeproof.contracts import (
    DecimalType,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
    TimeForm,
    TimeFormat,
    load_contract,
)
from lakeproof.gold.product_file import load_products
from lakeproof.settings import Settings, settings_of


def archive_classes(settings: Settings, stream: str) -> Path:
    """Run a good and a bad record through a stream of a temporary lake, and archive what the JVM loaded.

    Later sessions start from it, see :func:`consumer.app.session.start_session`.
    """
    contract = load_contract(settings.contracts, stream)
    archive = class_archive(settings)
    part = archive.with_suffix(".part")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lakeproof-") as folder:
        lake = _lake(Path(folder), settings)
        landed = Path(folder) / "landing" / stream / f"{uuid.uuid4().hex}.json"
        landed.parent.mkdir(parents=True)
        landed.write_text(json.dumps([{field.name: _sample(field) for field in contract.live}, {}]))
        once = Trigger(available_now=True)
        products = load_products(lake.gold, [stream], partial(load_contract, lake.contracts))
        queries: list[Query] = [BronzeQuery(lake, stream, once)]
        if contract.silver:
            asked = Asked(lake, {stream: contract}, [stream], [replace(each, sinks=()) for each in products])
            queries += [LayerQuery(lake, layer, once) for layer in layers_of(asked)]
        start = partial(start_session, lake, "lakeproof class archive", PLANNING_ONLY, part)
        run_queries(lake, queries, start, available_now=True)
        end_session()  # the JVM writes the archive when it ends
    part.replace(archive)
    return archive


def _lake(home: Path, settings: Settings) -> Settings:
    """An embedded lake in `home`, whatever the environment says of another one."""
    return settings_of(
        {
            "LAKE_HOME": home,
            "LAKE_CONTRACTS": settings.contracts,
            "LAKE_GOLD": settings.gold,
            "LAKE_JARS": settings.spark.jars,
            "LAKE_DRIVER_MEMORY": settings.spark.driver_memory,
            "LAKE_SPARK_UI_PORT": 0,
        }
    )


def _sample(field: Field) -> object:
    """A value that meets the field's type."""
    if field.allowed:
        return field.allowed[0]
    match field.type:
        case ObjectType(fields):
            return {inner.name: _sample(inner) for inner in fields}
        case MapType():
            return {}
        case ListType():
            return []
        case PrimitiveType.TIMESTAMP:
            return _now(field.time)
        case PrimitiveType.DATE:
            return datetime.now(UTC).date().isoformat()
        case PrimitiveType.STRING | PrimitiveType.SCALAR:
            return "sample"
        case PrimitiveType.BOOLEAN:
            return True
        case PrimitiveType() | DecimalType():
            return 0


def _now(form: TimeForm) -> object:
    """The current time as a contract has it; a noon, which every zone has."""
    now = datetime.now(UTC).replace(hour=12)
    if form.format.per_second:
        return int(now.timestamp()) * form.format.per_second
    if form.format is TimeFormat.DATE:
        return now.date().isoformat()
    return now.replace(tzinfo=None).isoformat(" " if " " in form.format else "T") + "Z" * form.format.has_offset
