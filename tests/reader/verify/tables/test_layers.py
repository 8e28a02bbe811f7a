"""Reading the state database beside a consumer that may not have created it."""

from lakeproof.addresses import sqlite_path
from lakeproof.settings import Settings
from lakeproof.state.lease import QueryState
from reader.verify.tables.layers import query_state


def test_a_missing_state_database_is_not_created(lake_settings: Settings) -> None:
    path = sqlite_path(lake_settings.state.database)
    assert path
    path.parent.mkdir(parents=True, exist_ok=True)
    assert query_state(lake_settings, "events") is QueryState.NEVER
    assert not path.exists()
