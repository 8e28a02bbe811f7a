"""Posts from pages: preflight requests, listed origins, beacons."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.collector.conftest import own_topics
from tests.collector.running import Collector
from tests.servers import KafkaServer

SHOP, OTHER = "https://shop.example", "https://other.example"
BODY = b'[{"id":1,"type":"a","event":{}}]'


@pytest.fixture(scope="module")
def running(kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    settings = own_topics(kafka) | {"LAKE_COLLECTOR_ORIGINS": f"{SHOP}/, http://localhost:3000"}
    with Collector(tmp_path_factory.mktemp("browser"), settings) as started:
        yield started.ready()


def test_only_listed_origins_may_post(running: Collector) -> None:
    def preflight(origin: str) -> Any:
        asked = {
            "access-control-request-method": "POST",
            "access-control-request-headers": "content-type,idempotency-key",
        }
        return running.request("OPTIONS", "/collect", headers={"origin": origin} | asked)

    allowed = preflight(SHOP)
    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, SHOP)
    assert "idempotency-key" in allowed.headers["access-control-allow-headers"].lower()
    assert preflight(OTHER).status == 400

    accepted = running.send(BODY, origin=SHOP)
    assert (accepted.status, accepted.headers["access-control-allow-origin"]) == (202, SHOP)
    assert "access-control-allow-origin" not in running.send(BODY, origin=OTHER).headers


@pytest.mark.parametrize(
    ("origin", "status"), [(SHOP, 202), ("http://localhost:3000", 202), (OTHER, 415), ("null", 415), ("", 415)]
)
def test_a_beacon_is_accepted_from_listed_origins(running: Collector, origin: str, status: int) -> None:
    answer = running.send(BODY, content_type="text/plain;charset=UTF-8", origin=origin)
    assert answer.status == status


def test_without_origins_there_is_no_cors(collector: Collector) -> None:
    answer = collector.send(BODY, origin=SHOP)
    assert answer.status == 202
    assert not [name for name in answer.headers if name.startswith("access-control")]
