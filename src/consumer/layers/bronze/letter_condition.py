"""A condition on dead letters, as an operator writes it: SQL in DuckDB's dialect, like all SQL of the project."""

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakeproof.errors import UsageError
from lakeproof.wording import first_line

COLUMNS = (
    "reasons",
    "codes",
    "raw",
    "state",
    "attempts",
    "_source",
    "_position",
    "_landed_at",
    "_ingested_at",
    "_contract_version",
)
"""Columns that a condition can use; for a topic also ``_key`` and ``_headers``."""

_HINT = (
    "Write a condition as in SQL's WHERE, like \"list_contains(codes, 'wrong_type') AND _source LIKE '2026/11/%'\". "
    f"The columns are {', '.join(COLUMNS)}."
)


def spark_condition(option: str, text: str) -> str:
    """Translate a condition to Spark SQL; refuse text that is not a condition."""
    return _translated(option, text, "a condition", _HINT)


def spark_expression(option: str, text: str) -> str:
    """Translate an expression over ``raw`` to Spark SQL."""
    return _translated(
        option, text, "an expression", "Write one over raw, like replace(raw, '\"qty\"', '\"quantity\"')."
    )


def _translated(option: str, text: str, what: str, hint: str) -> str:
    try:
        parsed = sqlglot.parse(text, dialect="duckdb")
    except SqlglotError as error:
        raise UsageError(f"{option}: {text!r} is not {what}: {first_line(error)}.", hint) from error
    statements = [each for each in parsed if each is not None]
    if len(statements) != 1:
        raise UsageError(f"{option}: expected {what}, got {text!r}.", hint)
    (tree,) = statements
    refused = (exp.Query, exp.DDL, exp.DML, exp.Command, exp.Drop, exp.Set, exp.Alias, exp.AggFunc, exp.Window)
    if not isinstance(tree, exp.Expression) or any(isinstance(node, refused) for node in tree.walk()):
        raise UsageError(f"{option}: {text!r} is not {what}.", hint)
    try:
        return tree.sql(dialect="spark", comments=False)
    except SqlglotError as error:
        raise UsageError(f"{option}: {text!r} cannot be evaluated: {first_line(error)}.", hint) from error
