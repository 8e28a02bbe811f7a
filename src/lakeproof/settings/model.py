"""All settings as one model."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from lakeproof.addresses import folder
from lakeproof.settings.checks import Folder, checked
from lakeproof.settings.group import InHome, SettingsGroup, in_home
from lakeproof.settings.lake import (
    CatalogSettings,
    Limits,
    S3Settings,
    SilverSettings,
    SinkSettings,
    SourceS3Settings,
    StateSettings,
)
from lakeproof.settings.modes import DedupeSettings, WindowsSettings
from lakeproof.settings.operations import (
    ErasureSettings,
    MaintenanceSettings,
    MonitorSettings,
    ServeSettings,
    SparkSettings,
)
from lakeproof.settings.sources import (
    CollectorSettings,
    KafkaSettings,
    LandingSettings,
    RegistrySettings,
    TopicSettings,
)

CLICKSTREAM = "clickstream"  # name of the stream of the collector


class Settings(InHome, title="General"):
    """Settings of all programs.

    ``home`` moves all embedded defaults; each part can also be set to a path or a URI (``file://``, ``s3://``).
    """

    contracts: Folder = Field(Path("contracts"), alias="LAKE_CONTRACTS", description="folder of contract files")
    gold: Folder = Field(Path("gold"), alias="LAKE_GOLD", description="folder of data product files")
    logs: Annotated[Path, checked(lambda text: folder(text).absolute())] = Field(
        default_factory=in_home("logs"), alias="LAKE_LOGS", description="folder of log files"
    )
    judge: Literal["auto", "native", "python"] = Field(
        "auto",
        alias="LAKE_JUDGE",
        description="judge of the consumer: native, python, or auto: native if it is installed",
    )
    landing: LandingSettings
    kafka: KafkaSettings
    catalog: CatalogSettings
    state: StateSettings
    limits: Limits
    silver: SilverSettings
    maintenance: MaintenanceSettings
    erasure: ErasureSettings
    monitor: MonitorSettings
    spark: SparkSettings
    topics: TopicSettings
    registry: RegistrySettings
    sinks: SinkSettings
    collector: CollectorSettings
    dedupe: DedupeSettings
    windows: WindowsSettings
    serve: ServeSettings
    s3: S3Settings
    source_s3: SourceS3Settings

    @property
    def streams(self) -> list[str]:
        """Names of the streams that have a contract file, sorted."""
        return sorted(path.stem for path in self.contracts.glob("*.yaml"))

    def s3_of_source(self, endpoint_url: str | None = None) -> S3Settings:
        """Return S3 settings for a stream with its own address; `endpoint_url` is the endpoint of its contract."""
        own = self.source_s3
        found: S3Settings = own if own.access_key_id else self.s3
        endpoint = endpoint_url or own.endpoint_url or self.s3.endpoint_url
        return found.model_copy(update={"endpoint_url": endpoint, "region": own.region or self.s3.region})

    def topic_of(self, stream: str) -> str:
        """Name of a stream's topic; the clickstream uses the collector's."""
        return self.kafka.topic or (self.collector.topic if stream == CLICKSTREAM else stream)


GROUPS: dict[str, type[BaseModel]] = {"": Settings} | {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, SettingsGroup)
}
"""Models of the settings by field name; the first entry has the top-level fields."""


VARIABLES = {field.alias for group in GROUPS.values() for field in group.model_fields.values() if field.alias}
"""Names of the environment variables."""
