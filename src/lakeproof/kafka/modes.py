"""The modes on Kafka alone, `dedupe` and `windows`: read and interpret their settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path

import yaml
from pydantic.fields import FieldInfo

from lakeproof.addresses import as_uri, encoded
from lakeproof.contracts.duration import FORM, FORM_HINT, read_duration
from lakeproof.contracts.model import ISO_8601, TimeForm
from lakeproof.contracts.times import FORMAT, TimeFormError, time_form
from lakeproof.errors import UsageError
from lakeproof.settings import GROUPS, Settings, WindowsSettings, load_settings

_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)
_NOT_IN_FILES = ("home",)


class ModeName(StrEnum):
    """The modes, by their names in `consumer run`."""

    DEDUPE = "dedupe"
    WINDOWS = "windows"


@dataclass(frozen=True)
class Fields:
    """Names of the fields that are read from a message; the last three only by `windows`."""

    event_id: str
    event_time: str
    user_id: str | None = None
    amount: str | None = None
    event_type: str | None = None


@dataclass(frozen=True)
class Mode:
    """The configuration of a mode."""

    name: ModeName
    topic: str
    starting_offsets: str
    max_offsets: int
    fields: Fields
    watermark: int  # how much older than the newest event an event may be, in microseconds
    window: int | None  # length of a window in microseconds; None in the mode `dedupe`
    checkpoint: str  # a URI, like the other places
    parquet: str | None  # the sinks: at least one is set
    kafka: str | None
    aside: str  # place of bad and late messages, unless `aside_topic` is set
    aside_topic: str | None
    time: TimeForm = ISO_8601  # format of the event time

    @property
    def places(self) -> dict[str, str]:
        """Folders of the mode, by field of its settings."""
        aside = None if self.aside_topic else self.aside
        places = {"parquet": self.parquet, "aside": aside, "checkpoint": self.checkpoint}
        return {field: place for field, place in places.items() if place}


def fields_of(name: ModeName) -> dict[str, FieldInfo]:
    """Return the fields of a mode's settings, in the order of the model."""
    return {
        field: info for field, info in GROUPS[name].model_fields.items() if info.alias and field not in _NOT_IN_FILES
    }


def load_mode(name: ModeName, file: Path | None, options: Mapping[str, str] | None = None) -> tuple[Settings, Mode]:
    """Read the settings of a mode: options override the environment, which overrides the file."""
    defaults = _of_file(name, file)
    own = _variables(name, options or {}, "The command line")
    settings = load_settings(defaults, own)
    return settings, mode_of(name, settings)


def mode_of(name: ModeName, settings: Settings) -> Mode:
    """Build a mode from its settings."""
    own = settings.windows if name is ModeName.WINDOWS else settings.dedupe
    window = None
    fields = Fields(own.event_id, own.event_time)
    if isinstance(own, WindowsSettings):
        window = _window(own.window) // _MICROSECOND
        fields = Fields(own.event_id, own.event_time, own.user_id, own.amount, own.event_type)
    mode = Mode(
        name=name,
        topic=own.topic,
        starting_offsets=own.starting_offsets,
        max_offsets=own.max_offsets,
        fields=fields,
        watermark=_duration("watermark", own.watermark) // _MICROSECOND,
        window=window,
        checkpoint=as_uri(own.checkpoint) if own.checkpoint else encoded(f"{settings.state.checkpoints}/{name}"),
        parquet=as_uri(own.parquet) if own.parquet else None,
        kafka=own.kafka,
        aside=as_uri(own.aside),
        aside_topic=own.aside_topic,
        time=_time(own.event_time_format, own.event_time_zone),
    )
    _check(mode)
    return mode


def _check(mode: Mode) -> None:
    if not (mode.parquet or mode.kafka):
        raise UsageError(
            f"The mode {mode.name} has no sink.",
            f"Set parquet to a folder, kafka to a topic, or both: in {mode.name}.yaml, or with --parquet FOLDER.",
        )
    names = [name for name in vars(mode.fields).values() if name]
    if len(set(names)) < len(names):
        raise UsageError(f"Two fields of a message have the same name: {', '.join(names)}.", "Use different names.")
    topics = {"topic": mode.topic, "kafka": mode.kafka, "aside_topic": mode.aside_topic}
    for kind, named in (("topic", topics), ("folder", mode.places)):
        seen: dict[str, str] = {}
        for field, place in named.items():
            if place and place in seen:
                raise UsageError(
                    f"{seen[place]} and {field} of the mode {mode.name} are the same {kind}, {place}.",
                    f"Use a {kind} of its own for each.",
                )
            if place:
                seen[place] = field


def _time(pattern: str | None, zone: str | None) -> TimeForm:
    try:
        return time_form(pattern, zone)
    except TimeFormError as error:
        field = "event_time_format" if error.option == FORMAT else "event_time_zone"
        raise UsageError(f"{field}: {error.message}", error.hint) from None


def _duration(field: str, text: str) -> timedelta:
    found = read_duration(text)
    if found is None:
        raise UsageError(f"{field}: expected {FORM}, got {text!r}.", FORM_HINT)
    return found


def _window(text: str) -> timedelta:
    length = _duration("window", text)
    if length % _DAY and _DAY % length:
        raise UsageError(
            f"window: {text} does not divide a day, and is not a number of days.",
            "Windows start at midnight UTC. Use a duration like 5 minutes, 1 hour or 1 day.",
        )
    return length


def _of_file(name: ModeName, file: Path | None) -> dict[str, str]:
    """Return the variables that a settings file sets."""
    path = file or Path(f"{name}.yaml")
    try:
        # Values are text, like those of the environment: a time stays as written.
        found = yaml.load(path.read_bytes(), Loader=yaml.BaseLoader)  # noqa: S506 - it makes texts, lists and dicts
    except FileNotFoundError:
        if file is None:
            return {}
        raise UsageError(f"The settings file {path} does not exist.", "Check --config.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid YAML: {str(error).splitlines()[0]}.", "Correct the file.") from None
    if found is None:
        return {}
    if not isinstance(found, dict) or any(not isinstance(value, str) for value in found.values()):
        raise UsageError(f"{path}: expected lines of the form `field: value`.", f"See docs/modes.md for {name}.yaml.")
    return _variables(name, found, str(path))


def _variables(name: ModeName, pairs: Mapping[str, str], origin: str) -> dict[str, str]:
    """Return values by the variables of their fields; an empty value means unset."""
    fields = {field: info.alias for field, info in fields_of(name).items()}
    for field in pairs:
        if field not in fields:
            likely = get_close_matches(field, fields, n=1)
            hint = f"Did you mean {likely[0]}?" if likely else f"Fields: {', '.join(sorted(fields))}."
            raise UsageError(f"{origin}: the mode {name} has no field {field!r}.", hint)
    return {str(fields[field]): value for field, value in pairs.items() if value not in ("", "null", "~")}
