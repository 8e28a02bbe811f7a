"""What verify finds about a table of gold, in words."""

from dataclasses import dataclass

from reader.verify.tables import TableFinding

MISSING = "missing"
SURPLUS = "not expected"
REPEATED = "several rows of one window"


def wrong(column: str) -> str:
    """Of rows whose value in a column is not the one that was recomputed."""
    return f"wrong {column}"


@dataclass(frozen=True)
class ProductVerification:
    """What verify found in the table of a data product.

    Parameters
    ----------
    product
        Name of the product.
    windows
        How many windows were recomputed: one for each combination of keys.
    behind
        Rows that silver has kept since the newest micro-batch of the table, which are not in it yet. Where windows are
        published once, only if one of them can be. All rows of silver, if the table does not exist.
    findings
        What is wrong with the rows of the table.
    problems
        What is wrong with the table as a whole, in words.
    exists
        Whether the table exists. If not, and that is no problem, it has not been filled yet.
    """

    product: str
    windows: int = 0
    behind: int = 0
    findings: tuple[TableFinding, ...] = ()
    problems: tuple[str, ...] = ()
    exists: bool = True

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings and not self.problems
