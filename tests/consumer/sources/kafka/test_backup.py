"""A stream over a topic returns to a backup, and resumes from the topic, and to the topic of silver."""

import pytest
from tests.consumer.direct import run_in_turn
from tests.consumer.lake import SessionOf, rows
from tests.consumer.taking import layer_queries
from tests.lakes import changed
from tests.messages import event, received, send
from tests.servers import KafkaServer

from consumer.queries.bronze import BronzeQuery
from consumer.queries.trigger import Trigger
from lakeproof.backup.manifest import folder_at
from lakeproof.backup.restore import plan_restore, restore
from lakeproof.backup.take import back_up
from lakeproof.contracts.duration import read_option
from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings
from reader.verify.driver import verify

pytestmark = pytest.mark.spark


@pytest.mark.all
def test_a_topic_is_read_from_where_the_backup_was(
    session_of: SessionOf, kafka: KafkaServer, lake_settings: Settings
) -> None:
    topic, silver = kafka.new_topic(partitions=2), kafka.new_topic()
    own = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "LAKE_KAFKA_TOPIC": topic}
    lake, trigger = changed(lake_settings, **own), Trigger(available_now=True)

    def take() -> None:
        queries = [
            BronzeQuery(lake, "events", trigger, "kafka"),
            *layer_queries(lake, "events", trigger, silver_topic=silver),
        ]
        run_in_turn(session_of(lake), lake, queries)

    send(kafka, topic, [event(0), b"garbage \xff"])
    take()
    _, folder = back_up(lake, folder_at(lake, None), read_option("7d"))
    send(kafka, topic, [event(1), b"more garbage"])
    send(kafka, topic, [event(2)], partition=1)
    take()
    restore(lake, folder)
    assert [row["event_id"] for row in rows(lake, "silver.events")] == ["e0"]
    send(kafka, topic, [event(3)])
    take()
    assert sorted(row["event_id"] for row in rows(lake, "silver.events")) == ["e0", "e1", "e2", "e3"]
    assert sorted(row["raw"] for row in rows(lake, "dead_letters.events")) == [b"garbage \xff", b"more garbage"]
    (found,) = verify(lake, "events", values=True)
    assert found.clean
    sent = received(kafka, silver)
    ids = [dict(message.headers() or [])["lakeproof-id"] for message in sent]
    # At least once: rows after the backup were sent again, as the same messages.
    assert (len(sent), len(set(ids)), {message.key() for message in sent}) == (6, 4, {b"e0", b"e1", b"e2", b"e3"})

    kafka.delete_records(topic, 0, 3)
    assert plan_restore(lake, folder).lost == {"events": [f"{topic}/0: offsets 2 to 2"]}
    with pytest.raises(LakeproofError, match="offsets 2 to 2"):
        restore(lake, folder)
