"""The OpenAPI description is correct: generated posts get a documented answer, and accepted events are in Kafka."""

import json
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from tests.collector.running import Collector, at, event, messages
from tests.selection import ALL, examples
from tests.servers import KafkaServer

# Some generated posts exceed Hypothesis's limits on size or time.
quietly = settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
def test_answers_are_as_described_and_what_is_accepted_is_in_the_topic(
    collector: Collector, kafka: KafkaServer, mode: GenerationMode
) -> None:
    # By default, 413 is not allowed for data that breaks maxItems.
    checks = {"negative_data_rejection": {"expected-statuses": [400, 413, 415, 422]}}
    config = SchemathesisConfig.from_dict({"checks": checks})
    api = schemathesis.openapi.from_url(f"http://127.0.0.1:{collector.port}/openapi.json", config=config)
    operations = [found.ok() for found in api.get_all_operations()]
    assert {operation.path for operation in operations} == {"/collect", "/healthz", "/readyz", "/metrics"}
    accepted: list[tuple[Any, Any]] = []
    statuses = set()

    @quietly
    @given(st.one_of([each.as_strategy(mode) for each in operations if mode is GenerationMode.POSITIVE or each.body]))
    def call(case: Any) -> None:
        # To JSON Schema, 1.0 is an integer. To us, an integer has only digits (docs/json-types.md).
        assume(not has_float_id(case.body))
        answer = case.call_and_validate()
        statuses.add(answer.status_code)
        assert answer.status_code < 500
        if answer.status_code == 202:
            accepted.append((json.loads(answer.request.body), answer.json()["receipts"]))

    call()
    # With few examples, it depends on the seed how many are posts.
    assert len(accepted) > (10 if ALL else 0) if mode is GenerationMode.POSITIVE else statuses >= {400, 422}
    landed = at(messages(kafka.bootstrap_servers, collector.settings["LAKE_COLLECTOR_TOPIC"]))
    places = [[(each["partition"], each["offset"]) for each in receipts] for _, receipts in accepted]
    for (sent, _), found in zip(accepted, places, strict=True):
        assert [json.loads(landed[place].value) for place in found] == sent
    assert len({place for found in places for place in found}) == sum(map(len, places))


def has_float_id(body: Any) -> bool:
    ids = [each.get("id") for each in body if isinstance(each, dict)] if isinstance(body, list) else []
    return any(isinstance(each, float) and each.is_integer() for each in ids)


def test_the_description_has_the_limits_of_the_settings(start_collector: Any, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("")
    running: Collector = start_collector(collector_max_events=3, collector_keys=keys)
    operation = running.get("/openapi.json").json["paths"]["/collect"]["post"]
    assert operation["requestBody"]["content"]["application/json"]["schema"]["maxItems"] == 3
    assert operation["security"] == [{"key": []}]
    assert "401" in operation["responses"]
    assert running.ready().post([event(1)]).status == 401
