"""The command line of the consumer."""

from typing import Any

from consumer.cli.maintenance import maintain_tables
from consumer.cli.rebuild import archive, rebuild_layer
from consumer.cli.removal import erase_person, retain_landed_files
from consumer.cli.repair import accept_paused, give_up_files, resend_table, reset_stream
from consumer.cli.replay import replay_dead_letters
from consumer.cli.run import run_streams
from consumer.cli.status import show_status
from lakeproof.cluster import is_submitted
from lakeproof.command import application
from lakeproof.command import run as run_program

app = application(
    "consumer",
    "Judge landed batches with Spark, and append each record once: to bronze or to the dead letters.",
    ["LAKE_HOME", "LAKE_LANDING", "LAKE_CATALOG_URI", "LAKE_WAREHOUSE", "LAKE_CONTRACTS", "LAKE_DRIVER_MEMORY"],
    judges=True,
)
app.command("run")(run_streams)
app.command("replay")(replay_dead_letters)
app.command("maintain")(maintain_tables)
app.command("erase")(erase_person)
app.command("retain")(retain_landed_files)
app.command("reset")(reset_stream)
app.command("give-up")(give_up_files)
app.command("accept")(accept_paused)
app.command("status")(show_status)
app.command("resend")(resend_table)
app.command("rebuild")(rebuild_layer)
app.command("archive")(archive)


def _as_submitted(**options: Any) -> Any:
    """Run in the JVM that spark-submit has started."""
    from consumer.spark.cluster import adopt_submitted

    adopt_submitted()
    return app(**options)


def main() -> None:
    """Run the program."""
    run_program(_as_submitted if is_submitted() else app, logs=["run", "rebuild", "replay"])
