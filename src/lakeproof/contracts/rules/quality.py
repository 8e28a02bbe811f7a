"""Read the rules of a contract: entries of its ``quality`` sections whose type is ``sql``."""

from collections.abc import Iterator, Sequence

from open_data_contract_standard.model import DataQuality, SchemaProperty

from lakeproof.contracts.model import Field
from lakeproof.contracts.rules.expression import Rule
from lakeproof.documents.names import identifier
from lakeproof.documents.problems import ContractError, Problems
from lakeproof.documents.source import YamlPath

_TYPES = ("library", "text", "sql", "custom")
_EXPECTATIONS = (
    "metric",
    "rule",
    "arguments",
    "unit",
    "mustBe",
    "mustNotBe",
    "mustBeGreaterThan",
    "mustBeGreaterOrEqualTo",
    "mustBeLessThan",
    "mustBeLessOrEqualTo",
    "mustBeBetween",
    "mustNotBeBetween",
    "engine",
    "implementation",
)
_Found = tuple[DataQuality, YamlPath, str]  # an entry, its place, and the JSONPath of its field, if any


def read_rules(
    quality: Sequence[DataQuality],
    properties: Sequence[SchemaProperty],
    fields: tuple[Field, ...],
    place: YamlPath,
    problems: Problems,
) -> tuple[Rule, ...]:
    """Read the rules of the schema object at `place` and of its properties; invalid ones are reported.

    Rules of fields that could not be read are skipped.
    """
    rules: dict[str, Rule] = {}
    for entry, at, path in _entries(quality, properties, place):
        if entry.type not in (None, *_TYPES):
            message, hint = f"unknown quality type {entry.type!r}.", f"Expected one of: {', '.join(_TYPES)}."
            problems.report((*at, "type"), message, hint)
        if entry.type == "sql" and not problems.concern(entry.query):
            with problems.caught():
                rule = _rule(entry, at, path, fields)
                if rule.name in rules:
                    raise ContractError((*at, "name"), f"two rules are named {rule.name!r}.", "Rename one of them.")
                rules[rule.name] = rule
    return tuple(rules.values())


def _rule(entry: DataQuality, place: YamlPath, path: str, fields: tuple[Field, ...]) -> Rule:
    # Imported here: sqlglot is slow to import and not needed without rules.
    from lakeproof.contracts.rules.sql import parse_rule
    from lakeproof.contracts.rules.types import RuleError

    name = identifier(entry.name, (*place, "name"), "a rule")
    if not path:
        raise ContractError(place, f"the rule {name} is on a value in an array or a map.", "Move it to a field.")
    for key in _EXPECTATIONS:
        if getattr(entry, key) is not None:
            raise ContractError(
                (*place, key),
                f"the rule {name} has {key}, which is not supported.",
                "Remove it. The query itself is the condition that each record must meet.",
                about_key=True,
            )
    if entry.query is None:
        raise ContractError(place, f"the rule {name} has no query.", "Add one, like `query: amount > 0`.")
    try:
        condition = parse_rule(entry.query, fields)
    except RuleError as error:
        raise ContractError((*place, "query"), f"invalid rule {name}: {error}.", error.hint) from None
    text = " ".join((entry.description or entry.query).split())
    return Rule(name, path, text, condition)


def _entries(
    quality: Sequence[DataQuality] | None, properties: Sequence[SchemaProperty] | None, place: YamlPath, path: str = "$"
) -> Iterator[_Found]:
    for index, entry in enumerate(quality or []):
        yield entry, (*place, "quality", index), path
    for index, item in enumerate(properties or []):
        yield from _of_property(item, (*place, "properties", index), path and f"{path}.{item.name}")


def _of_property(item: SchemaProperty, place: YamlPath, path: str) -> Iterator[_Found]:
    yield from _entries(item.quality, item.properties, place, path)
    if item.items:
        yield from _of_property(item.items, (*place, "items"), "")
    if item.map and item.map.value:
        yield from _of_property(item.map.value, (*place, "map", "value"), "")
