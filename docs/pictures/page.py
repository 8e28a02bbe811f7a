"""Draw docs/pictures/page.png: the page of a lake that the programs filled, in Chromium. ``page.py FILE``.

Nine hours of a producer that sends garbage in the last three. Its files get the times at which they would have landed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[2]
FAULTS = ["--corruption-chance", "0.03", "--duplicate-chance", "0.05", "--invalid-schema-chance"]


def main(picture: Path) -> None:
    """Fill the lake in a temporary folder, and draw its page."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "shop"
        folder.mkdir()
        names = {
            "LAKE_CONTRACTS": ROOT / "contracts",
            "LAKE_GOLD": ROOT / "gold",
            "LAKE_JARS": ROOT / "target/jars/spark",
        }
        own = {name: str(value) for name, value in names.items()} | {"LAKE_HOME": "lake", "LAKE_SPARK_UI_PORT": "0"}

        def run(*command: str) -> None:
            subprocess.run([sys.executable, "-m", *command], cwd=folder, env=os.environ | own, check=True)

        now = datetime.now(UTC).replace(microsecond=0)
        landed: set[Path] = set()
        for hour in range(9):
            begin = now - timedelta(hours=9 - hour)
            pace = [
                "--batches",
                "8",
                "--batch-size",
                "250",
                "--seed",
                str(hour),
                "--start",
                f"{begin:%Y-%m-%dT%H:%M:%SZ}",
            ]
            run("producer", "events", *pace, *FAULTS, "0.35" if hour >= 6 else "0.03")
            new = sorted(set(folder.glob("lake/landing/events/**/*.json")) - landed)
            for number, file in enumerate(new):
                os.utime(file, ((begin + timedelta(minutes=7 * number)).timestamp(),) * 2)
            landed |= set(new)
        run("consumer", "run", "events", "--available-now")
        run("reader", "verify")
        run("reader", "page", "--out", "page.html")
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = chromium.new_page(viewport={"width": 1080, "height": 1250})
            page.goto((folder / "page.html").as_uri())
            page.screenshot(path=picture)
            chromium.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
