"""Archive the JVM classes that a run loads (class data sharing), so that later starts take about half the time."""

import json
import tempfile
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path

from consumer.layers.registry import layers_of
from consumer.queries.application import Query, run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.layer import LayerQuery
from consumer.queries.trigger import Trigger
from consumer.scope import scope_of_run
from consumer.spark.session import PLANNING_ONLY, class_archive, end_session, start_session
from lakeproof.settings import Settings, settings_of

STREAM = "events"
"""The stream of the project template, which every installation has."""


def archive_classes(settings: Settings) -> Path:
    """Run a good and a bad record through a temporary lake, and archive the loaded JVM classes for later sessions."""
    archive = class_archive(settings)
    part = archive.with_suffix(".part")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lakeproof-") as folder:
        lake = lake_of_template(Path(folder), settings)
        landed = Path(folder) / "landing" / STREAM / f"{uuid.uuid4().hex}.json"
        landed.parent.mkdir(parents=True)
        landed.write_text(json.dumps([good_record(), {}]))
        once = Trigger(available_now=True)
        scope = scope_of_run(lake, [STREAM], None)
        scope = replace(scope, products=[replace(each, sinks=()) for each in scope.products])
        queries: list[Query] = [BronzeQuery(lake, STREAM, once)]
        queries += [LayerQuery(lake, layer, once) for layer in layers_of(scope)]
        start = partial(start_session, lake, "lakeproof class archive", PLANNING_ONLY, part)
        run_queries(lake, queries, start, available_now=True)
        end_session()  # the JVM writes the archive when it ends
    part.replace(archive)
    return archive


def lake_of_template(home: Path, settings: Settings) -> Settings:
    """Return settings of an embedded lake in `home` with the template's files, regardless of the environment."""
    template = files("lakeproof.install") / "template"
    return settings_of(
        {
            "LAKE_HOME": home,
            "LAKE_CONTRACTS": str(template / "contracts"),
            "LAKE_GOLD": str(template / "gold"),
            "LAKE_JARS": settings.spark.jars,
            "LAKE_DRIVER_MEMORY": settings.spark.driver_memory,
            "LAKE_SPARK_UI_PORT": 0,
        }
    )


def good_record() -> dict[str, object]:
    """Return a record that meets the template's contract."""
    now = datetime.now(UTC).isoformat()
    return {
        "user_id": "u", "event_id": "e", "event_timestamp": now, "event_type": "purchase", "product_id": "p",
        "amount": 1, "properties": {"currency": "EUR"},
    }  # fmt: skip
