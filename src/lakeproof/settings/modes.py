"""Settings of the modes on Kafka."""

from typing import Annotated

from pydantic import Field

from lakeproof.settings.checks import Location, checked, offsets_text
from lakeproof.settings.group import InHome, in_home, with_prefix
from lakeproof.topics import topic_name


class ModeSettings(InHome):
    """Common settings of the modes on Kafka; each mode has its own variables and settings file."""

    topic: Annotated[str, checked(topic_name)] = Field("incoming-events", description="topic to read")
    starting_offsets: Annotated[str, checked(offsets_text)] = Field(
        "earliest", description="where the first run begins, as in `LAKE_KAFKA_STARTING_OFFSETS`"
    )
    max_offsets: int = Field(
        100_000, ge=1, description="maximum number of offsets in one micro-batch, of all partitions"
    )
    event_id: str = Field("eventId", min_length=1, description="field with the id of an event")
    event_time: str = Field("eventTime", min_length=1, description="field with the time of an event")
    event_time_format: str | None = Field(
        None, description="format of these times, as in a contract; none: ISO 8601 with an offset"
    )
    event_time_zone: str | None = Field(None, description="time zone of times without an offset: UTC or an IANA name")
    watermark: str = Field("10 minutes", description="how much older than the newest event an event may be")
    parquet: Location | None = Field(None, description="sink: a folder of Parquet files")
    kafka: Annotated[str, checked(topic_name)] | None = Field(None, description="sink: a topic")
    aside_topic: Annotated[str, checked(topic_name)] | None = Field(
        None, description="topic of bad and late messages; none: they go to a folder"
    )
    checkpoint: Location | None = Field(
        None, description="folder of the checkpoint; none: a separate folder below `LAKE_CHECKPOINTS`"
    )


class DedupeSettings(ModeSettings, title="Mode dedupe", alias_generator=with_prefix("LAKE_DEDUPE_")):
    """The mode `dedupe`: each event of a topic once."""

    aside: Location = Field(
        default_factory=in_home("aside/dedupe"), description="folder of bad and late messages, as Parquet files"
    )


class WindowsSettings(ModeSettings, title="Mode windows", alias_generator=with_prefix("LAKE_WINDOWS_")):
    """The mode `windows`: each event of a topic once, in windows of each user."""

    user_id: str = Field(
        "userId", min_length=1, description="field with the user of an event: each window belongs to one user"
    )
    amount: str = Field("amount", min_length=1, description="field with the amount of an event, which each window sums")
    event_type: str = Field(
        "eventType", min_length=1, description="field with the type of an event, which is checked but not kept"
    )
    window: str = Field("5 minutes", description="length of a window")
    aside: Location = Field(
        default_factory=in_home("aside/windows"), description="folder of bad and late messages, as Parquet files"
    )
