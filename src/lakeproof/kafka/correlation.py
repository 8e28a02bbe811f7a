"""The correlation id of an event, which is the same for all its copies.

Consumer and reader compute it independently: the first 32 hexadecimal digits of the SHA-256 of these lines:

- of an event with an idempotency key: ``post``, client, key, index of the event;
- of any other event: ``event``, client, id as text.

The client is empty if the collector requires no keys.
"""

import hashlib

# Headers that the collector writes.
IDEMPOTENCY_KEY = "idempotency-key"
IDEMPOTENCY_INDEX = "idempotency-index"
CLIENT = "client"
_DIGITS = 32


def correlation_id(client: bytes | None, key: bytes | None, index: bytes | None, identity: bytes) -> str:
    """Compute the correlation id of an event."""
    if key is None or index is None:
        lines = b"event\n%b\n%b" % (client or b"", identity)
    else:
        lines = b"post\n%b\n%b\n%b" % (client or b"", key, index)
    return hashlib.sha256(lines).hexdigest()[:_DIGITS]
