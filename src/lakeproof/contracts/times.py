"""Formats of timestamps: the options ``format``, ``timezone`` and ``defaultTimezone`` of the standard."""

import re
from typing import Any
from zoneinfo import ZoneInfo

from lakeproof.contracts.model import ISO_8601, PrimitiveType, TimeForm, TimeFormat, Type
from lakeproof.documents.problems import Problems
from lakeproof.documents.source import YamlPath

FORMAT, HAS_ZONE, ZONE = TIME_OPTIONS = ("format", "timezone", "defaultTimezone")
_UTC = ("UTC", "Etc/UTC")
# Abbreviations are ambiguous, `localtime` depends on the machine, and `right/…` counts leap seconds.
_ZONE = re.compile(r"[A-Z][A-Za-z0-9_+-]*(/[A-Z][A-Za-z0-9_+-]*)+")
_ZONE_HINT = "Use UTC, or a name of the IANA database like Europe/Berlin."


class TimeFormError(Exception):
    """Invalid options for the format of a timestamp."""

    def __init__(self, option: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.option = option
        self.message = message
        self.hint = hint


def time_form(pattern: object, zone: object) -> TimeForm:
    """Make the format of timestamps from a pattern and a time zone."""
    found = TimeFormat.T_OFFSET if pattern is None else next((each for each in TimeFormat if each == pattern), None)
    if found is None:
        raise TimeFormError(FORMAT, f"unknown format {pattern!r}.", f"Expected one of: {', '.join(TimeFormat)}.")
    if zone is None:
        if found.may_lack_offset and found is not TimeFormat.DATE:
            raise TimeFormError(FORMAT, f"values like {found} have no UTC offset, and no zone is set.", _ZONE_HINT)
        return TimeForm(found)
    if not found.may_lack_offset:
        hint = "Remove the zone, or use a format without XXX."
        raise TimeFormError(ZONE, f"the zone has no effect: values like {found} do not need one.", hint)
    return TimeForm(found, _zone(zone))


def read_time(options: dict[str, Any], kind: Type, place: YamlPath, problems: Problems) -> TimeForm:
    """Read the format of a timestamp from the ``logicalTypeOptions`` at `place`."""
    if kind is not PrimitiveType.TIMESTAMP:
        return ISO_8601
    try:
        form = time_form(options.get(FORMAT), options.get(ZONE))
    except TimeFormError as error:
        at = (*place, error.option) if error.option in options else place
        hint = f"Add {ZONE}. {error.hint}" if error.hint is _ZONE_HINT and ZONE not in options else error.hint
        problems.report(at, error.message, hint)
        return ISO_8601
    has_zone = options.get(HAS_ZONE)
    if HAS_ZONE in options and has_zone not in _may_have_zone(form.format):
        message = f"{HAS_ZONE} is {str(has_zone).lower()}, but the format is {form.format}."
        problems.report((*place, HAS_ZONE), message, f"Correct the {FORMAT}, or remove {HAS_ZONE}.")
    return form


def _may_have_zone(form: TimeFormat) -> tuple[bool, ...]:
    if form.has_offset:
        return (True,)
    return (False, True) if form.endswith("[XXX]") else (False,)


def _zone(name: object) -> str:
    if name in _UTC:
        return "UTC"
    try:
        if isinstance(name, str) and _ZONE.fullmatch(name):
            return ZoneInfo(name).key
    except (KeyError, ValueError, OSError):  # missing, not a time zone, or a folder
        pass
    raise TimeFormError(ZONE, f"unknown time zone {name!r}.", _ZONE_HINT)
