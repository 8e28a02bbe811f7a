"""The driver uses no connection for the whole time of a proof, which may take hours."""

import json

import pytest
from pyiceberg.catalog import Catalog
from tests.reader.verify.lake import Lake

from lakeproof import catalog
from lakeproof.settings import Settings
from reader.verify import registry
from reader.verify.check import Check, Result, Scope
from reader.verify.checks.sources import SECTION
from reader.verify.driver import verify

EVENT = {"user_id": "a", "event_id": "x", "event_timestamp": "2026-01-01T10:00:00Z", "event_type": "page_view"}


def test_a_proof_ends_though_the_connections_it_began_with_are_gone(
    lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(lake_settings)
    lake.land({"0.json": json.dumps([EVENT]).encode()})
    lake.consume(micro_batch=0)
    opened: list[Catalog] = []
    open_catalog = catalog.open_catalog

    def open_it(settings: Settings) -> Catalog:
        opened.append(open_catalog(settings))
        return opened[-1]

    def refuse(*_: object) -> None:
        raise ConnectionError("closed, since it was idle for hours")

    def wait(_: Scope) -> tuple[Result, ...]:
        for each in opened:
            monkeypatch.setattr(each, "load_table", refuse)
        return ()

    monkeypatch.setattr(catalog, "open_catalog", open_it)
    monkeypatch.setattr(registry, "CHECKS", [*registry.CHECKS, Check("wait", SECTION, wait)])
    (found,) = verify(lake_settings, "events")
    assert opened
    assert found.clean
