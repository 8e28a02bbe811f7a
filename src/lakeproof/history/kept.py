"""The contracts under which rows were decided, from the texts that the landing log's database keeps."""

from lakeproof.contracts import Contract, parse_contract
from lakeproof.errors import LakeproofError
from lakeproof.state.contract_log import ContractLog


def kept_contract(log: ContractLog, digest: str, table: str) -> Contract:
    """The contract under which a table was filled.

    Raises
    ------
    LakeproofError
        The landing log does not have its text.
    """
    text = log.text(digest)
    if text is None:
        raise LakeproofError(
            f"{table} was filled under the contract {digest[:12]}…, which the landing log does not have.",
            "Restore the landing log's database, or set LAKE_LANDING_LOG_URI to its address.",
        )
    return parse_contract(text, f"contract {digest[:12]}")
