"""The usual endpoint: pydantic models, ``producer.send``, and an answer before any acknowledgement.

``USUAL_CLIENT`` chooses the Kafka client: ``kafka-python``, or ``confluent-kafka``, which is faster.
"""

import json
import os
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

TOPIC = os.environ.get("LAKE_COLLECTOR_TOPIC", "events")
SERVERS = os.environ.get("LAKE_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9092")


class Event(BaseModel):
    id: int
    type: str
    event: dict[str, Any]


app = FastAPI()

if os.environ.get("USUAL_CLIENT") == "confluent-kafka":
    from confluent_kafka import Producer

    confluent = Producer({"bootstrap.servers": SERVERS})

    @app.post("/collect", status_code=202)
    async def collect(events: list[Event]) -> dict[str, int]:
        for event in events:
            confluent.produce(TOPIC, json.dumps(event.model_dump()).encode())
        confluent.poll(0)
        return {"accepted": len(events)}

elif os.environ.get("USUAL_CLIENT") == "kafka-python":
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=SERVERS, value_serializer=lambda value: json.dumps(value).encode())

    @app.post("/collect", status_code=202)
    async def collect(events: list[Event]) -> dict[str, int]:
        for event in events:
            producer.send(TOPIC, event.model_dump())
        return {"accepted": len(events)}
