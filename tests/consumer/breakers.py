"""Contracts with breakers, as an operator writes and applies them."""

from pathlib import Path

from lakeproof.catalog import open_catalog
from lakeproof.history.apply import carry_out, plan
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog

_CONTRACTS = Path(__file__).parents[2] / "contracts"


def write_contract(folder: Path, breaker: str, *types: str, version: str = "2.0.0", stream: str = "events") -> None:
    """Write the contract of events with a breaker, and with more allowed types of events."""
    text = (_CONTRACTS / "events.yaml").read_text().replace("name: events", f"name: {stream}")
    custom = f"customProperties:\n  - {{property: breaker, value: {breaker}}}\n"
    text = text.replace("customProperties:\n", custom, 1)
    enum = "        enum:\n"
    text = text.replace(enum, enum + "".join(f"          - value: {each}\n" for each in types), 1)
    lines = [f"version: {version}" if line.startswith("version:") else line for line in text.splitlines()]
    folder.mkdir(exist_ok=True)
    (folder / f"{stream}.yaml").write_text("\n".join(lines))


def apply_contract(settings: Settings, stream: str = "events") -> None:
    """Apply a contract, as `lakeproof contract apply` does."""
    catalog = open_catalog(settings)
    carry_out(catalog, plan(catalog, settings, stream), ContractLog(settings.state.database))
