"""A lake in a folder whose name would break a URL, a pattern or a list of options."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.programs import forked

ROOT = Path(__file__).parents[1]


@pytest.mark.all
@pytest.mark.spark
def test_all_programs_find_the_same_lake(tmp_path: Path) -> None:
    name = 'a b#c?d%20e it\'s "[x]*{y}" ${sys:user.home};,&=é'
    home = tmp_path / name
    environment = os.environ | {
        "LAKE_HOME": str(home),
        "LAKE_CONTRACTS": str(ROOT / "contracts"),
        "LAKE_JARS": str(ROOT / "target" / "jars" / "spark"),
        "LAKE_SPARK_UI_PORT": "0",
        "LAKE_SETTLE_SECONDS": "0",
    }

    def run(*arguments: str) -> str:
        command = [*forked(arguments[0]), *arguments[1:]]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "ERROR" not in done.stderr  # Log4j's own error for a pattern that it cannot read
        return done.stdout

    run("producer", "events", "--batches", "2", "--batch-size", "5", "--seed", "7", "--invalid-schema-chance", "0.5")
    run("consumer", "run", "events", "--available-now")
    joined = "SELECT count(*) AS n FROM {} JOIN landing.events USING (_source)"
    bronze = int(run("reader", "sql", joined.format("bronze.events"), "--format", "csv").split()[1])
    dead_letters = int(run("reader", "sql", joined.format("dead_letters.events"), "--format", "csv").split()[1])
    assert bronze + dead_letters == 10
    assert bronze > 0
    assert dead_letters > 0
    assert "Clean" in run("reader", "verify", "--values")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (home / "logs" / "spark.log").exists()
