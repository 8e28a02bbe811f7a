"""`lakeproof gold check` as a user runs it."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.lakeproof.gold.products import CONTRACT, PRODUCT
from tests.programs import forked

ROOT = Path(__file__).parents[3]


@pytest.fixture
def check(tmp_path):
    (tmp_path / "gold").mkdir()
    (tmp_path / "contracts").mkdir()
    (tmp_path / "contracts" / "orders.yaml").write_text(CONTRACT)

    def run(*names: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*forked("lakeproof"), "gold", "check", *names],
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def test_each_product_is_a_line(check, tmp_path):
    (tmp_path / "gold" / "spending.yaml").write_text(PRODUCT)
    total = PRODUCT.replace("name: spending", "name: total").replace("[customer]", "[]").replace("updates", "final")
    (tmp_path / "gold" / "total.yaml").write_text(total)
    done = check()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "spending: ok: silver orders, key customer, window 1 hour every 15 minutes, measures orders, spent, large, "
        "publish updates\n"
        "total: ok: silver orders, key none, window 1 hour every 15 minutes, measures orders, spent, large, "
        "publish final\n"
    )
    assert check("total").stdout == done.stdout.splitlines(keepends=True)[1]


def test_a_mistake_does_not_keep_the_others_from_being_checked(check, tmp_path):
    (tmp_path / "gold" / "bad.yaml").write_text(PRODUCT)
    (tmp_path / "gold" / "spending.yaml").write_text(PRODUCT)
    done = check()
    assert done.returncode == 2
    assert done.stdout.startswith("spending: ok: ")
    assert done.stderr.splitlines()[0] == (
        "Error: gold/bad.yaml:1:7: name: the product is named 'spending', but the file is the product 'bad'."
    )
    assert done.stderr.splitlines()[1:3] == ["  1 | name: spending", "    |       ^^^^^^^^"]
    assert len(done.stderr.splitlines()) == 4
    both = check("none", "bad")
    assert (both.returncode, both.stdout, both.stderr.count("Error: ")) == (2, "", 2)


def test_a_broken_contract_is_told(check, tmp_path):
    (tmp_path / "gold" / "spending.yaml").write_text(PRODUCT)
    (tmp_path / "contracts" / "orders.yaml").write_text(CONTRACT.replace("eventTime", "eventime"))
    done = check()
    assert done.returncode == 2
    assert done.stderr.startswith(
        "Error: gold/spending.yaml:2:9: silver: contracts/orders.yaml:7:16: unknown custom property"
    )


def test_deprecated_fields_that_are_used_are_told(check, tmp_path):
    contract = CONTRACT.replace("name: channel,", "name: channel, deprecated: true,")
    contract = contract.replace("name: ratio,", "name: ratio, deprecated: true,")
    (tmp_path / "contracts" / "orders.yaml").write_text(contract)
    (tmp_path / "gold" / "spending.yaml").write_text(PRODUCT)
    done = check()
    assert done.returncode == 0
    assert done.stderr == "Warning: spending: channel is deprecated in the contract of orders.\n"


def test_no_products(check, tmp_path):
    done = check()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == "Error: No data products found in gold."
    assert check(LAKE_GOLD=str(tmp_path / "missing")).returncode == 2


def test_every_product_that_is_shipped_is_good(check):
    done = check(LAKE_GOLD=str(ROOT / "gold"), LAKE_CONTRACTS=str(ROOT / "contracts"))
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(": ")[:2] for line in done.stdout.splitlines()] == [
        [path.stem, "ok"] for path in sorted((ROOT / "gold").glob("*.yaml"))
    ]
