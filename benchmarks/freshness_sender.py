"""Sends messages at a steady rate, as ``producer events`` does, and records when.

Run as ``python -m benchmarks.freshness_sender NOTES TOPIC GROUPS PER_SECOND``. A line of the notes is a group of
messages, ``{"due", "at", "places": {partition: [first, last]}}``: `at` is the time when the client got the group.
"""

import json
import sys
import time
from pathlib import Path

from benchmarks.freshness_lander import STREAM, times
from lakeproof.contracts import load_contract
from lakeproof.kafka.sending import Outgoing, Sending
from lakeproof.settings import load_settings
from producer.batches import BatchPlan, make_batches
from producer.encoding import JsonStyle
from producer.faults import Chances

MESSAGES = 100


def main() -> None:
    """Send each group when it is due."""
    path, topic, groups, per_second = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    settings = load_settings()
    sending = Sending(settings.kafka, topic)
    plan = BatchPlan(1, 1_000, MESSAGES, 0, JsonStyle.COMPACT, Chances(0.0, 0.0, 0.0, 0.0))
    due: list[float] = []
    with path.open("w", buffering=1) as lines:
        contract = load_contract(settings.contracts, STREAM)
        for batch in make_batches(plan, contract, times(groups, per_second, due)):
            messages = [Outgoing(record.data, (record.key or "").encode()) for record in batch.records]
            at = time.time()
            sent = sending.send(messages)
            print(json.dumps({"due": due[-1], "at": at, "places": sent.places}), file=lines)


if __name__ == "__main__":
    main()
