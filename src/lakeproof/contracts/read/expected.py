"""Read ``anomalyBelow`` and ``anomalyAbove``, the range of normal values."""

import re
import sys
from decimal import Decimal

from open_data_contract_standard.model import SchemaProperty

from lakeproof.contracts.model import Constraints, DecimalType, Expected, PrimitiveType, Type, type_name
from lakeproof.contracts.read.custom_properties import ANOMALY_ABOVE, ANOMALY_BELOW, custom_values
from lakeproof.documents.problems import ContractError, Problems
from lakeproof.documents.source import YamlPath

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d{1,3})?", re.ASCII)
_NUMBERS = (PrimitiveType.INT, PrimitiveType.LONG, PrimitiveType.FLOAT, PrimitiveType.DOUBLE)


def read_expected(
    item: SchemaProperty, kind: Type, constraints: Constraints, place: YamlPath, problems: Problems
) -> Expected:
    """Read the range of normal values of the property at `place`."""
    ends: dict[str, tuple[Decimal, YamlPath]] = {}
    for name, value, at in custom_values(item.customProperties, place, ANOMALY_BELOW, ANOMALY_ABOVE):
        if kind not in _NUMBERS and not isinstance(kind, DecimalType):
            problems.report(at, f"{name} is only for numbers, but the type is {type_name(kind)}.", "Remove it.")
        elif (number := problems.read(_number, name, value, at)) is not None:
            ends[name] = number, at
    below, above = ends.get(ANOMALY_BELOW), ends.get(ANOMALY_ABOVE)
    if below and above and below[0] > above[0]:
        message = f"every value is an anomaly: {ANOMALY_BELOW} is greater than {ANOMALY_ABOVE}."
        problems.report(below[1], message, "Correct the range.")
    for end, bound, is_low in ((below, constraints.minimum, True), (above, constraints.maximum, False)):
        if end and bound:
            limit = Decimal(str(bound.value))
            if limit >= end[0] if is_low else limit <= end[0]:
                name, option = (ANOMALY_BELOW, "minimum") if is_low else (ANOMALY_ABOVE, "maximum")
                message = f"{name} has no effect: the {option} already rejects these values."
                problems.report(end[1], message, f"Remove {name}, or change the {option}.")
    return Expected(below and below[0], above and above[0])


def _number(name: str, value: object, place: YamlPath) -> Decimal:
    # Decimal numbers are text here, with the digits of the file.
    number = Decimal(str(value)) if not isinstance(value, bool) and _NUMBER.fullmatch(str(value)) else None
    if number is None or number.adjusted() > sys.float_info.max_10_exp:
        raise ContractError(place, f"{name}: expected a number, got {value!r}.", "Correct the value.")
    return number
