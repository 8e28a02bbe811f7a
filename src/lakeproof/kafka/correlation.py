"""The correlation id of an event: the same for each copy of it, whoever computes it.

The consumer derives it when it ingests an event, and the reader when it checks receipts. It is the beginning of the
SHA-256 of some lines, which any tool can compute:

- of an event that was sent with an idempotency key: ``post``, the client, the key, and the index of the event;
- of any other: ``event``, the client, and its id as text.

The client is empty where the collector requires no keys.
"""

import hashlib

IDEMPOTENCY_KEY = "idempotency-key"
IDEMPOTENCY_INDEX = "idempotency-index"
CLIENT = "client"
"""Names of the headers that the collector writes."""
_DIGITS = 32


def correlation_id(client: bytes | None, key: bytes | None, index: bytes | None, identity: bytes) -> str:
    """Compute the correlation id of an event."""
    if key is None or index is None:
        lines = b"event\n%b\n%b" % (client or b"", identity)
    else:
        lines = b"post\n%b\n%b\n%b" % (client or b"", key, index)
    return hashlib.sha256(lines).hexdigest()[:_DIGITS]
