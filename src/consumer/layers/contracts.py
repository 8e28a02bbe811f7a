"""The contracts that micro-batches were judged under, as the tables' markers name them."""

from functools import lru_cache

from lakeproof.contracts import Contract, parse_contract
from lakeproof.errors import LakeproofError
from lakeproof.state.contract_log import ContractLog


def recorded_contract(contracts: ContractLog, digest: str, missing: str) -> Contract:
    """Read a contract by its digest.

    Parameters
    ----------
    contracts
        Texts of the contracts.
    digest
        Which one.
    missing
        What to say if it is not there.

    Raises
    ------
    LakeproofError
        It is not there: the landing log's database was lost.
    """
    text = contracts.text(digest)
    if text is None:
        raise LakeproofError(missing, "Restore the landing log's database, or set LAKE_LANDING_LOG_URI to its address.")
    return _parsed(text, f"contract {digest[:12]}")


_parsed = lru_cache(maxsize=64)(parse_contract)  # each micro-batch of each layer asks for the same one
