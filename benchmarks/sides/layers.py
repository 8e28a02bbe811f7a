"""lakeproof's consumer from bronze to silver and gold, with a given strategy of silver."""

import json
import os
import sys
import time
from pathlib import Path

from benchmarks.harness import FOLDER_VARIABLE, ROOT
from benchmarks.sides.bronze import fill_bronze
from benchmarks.sides.counts import count
from consumer.layers.registry import layers_of
from consumer.queries.application import run_queries
from consumer.queries.layer import LayerQuery
from consumer.queries.trigger import Trigger
from consumer.scope import Scope
from consumer.spark.session import PLANNING_ONLY, start_session
from lakeproof.contracts import load_contract
from lakeproof.gold.product_file import load_product
from lakeproof.settings import load_settings


def main() -> None:
    """Fill bronze; then, timed, run silver and gold until they have all rows; then count."""
    declare(sys.argv[1])
    fill_bronze()
    settings = load_settings()
    spark = start_session(settings, "benchmark: lakeproof", PLANNING_ONLY)
    trigger = Trigger(available_now=True)
    began = time.monotonic()
    contract = load_contract(settings.contracts, "events")
    scope = Scope(
        settings, {"events": contract}, ["events"], [load_product(ROOT / "gold", "user_activity", lambda _: contract)]
    )
    queries = [LayerQuery(settings, layer, trigger) for layer in layers_of(scope)]
    run_queries(settings, queries, lambda: spark, available_now=True)
    seconds = time.monotonic() - began
    spark.stop()
    state = sum(path.stat().st_size for path in Path(settings.silver.index).rglob("*") if path.is_file())
    counts = count(settings, bronze="bronze.events", silver="silver.events", gold="gold.user_activity")
    print(json.dumps({"seconds": seconds, "state_bytes": state} | counts))


def declare(strategy: str) -> None:
    """Use a contract with a strategy of silver."""
    folder = Path(os.environ[FOLDER_VARIABLE]) / "contracts"
    folder.mkdir()
    text = (ROOT / "contracts" / "events.yaml").read_text()
    custom = f"customProperties:\n  - property: silverStrategy\n    value: {strategy}\n"
    (folder / "events.yaml").write_text(text.replace("customProperties:\n", custom, 1))
    os.environ["LAKE_CONTRACTS"] = str(folder)


if __name__ == "__main__":
    main()
