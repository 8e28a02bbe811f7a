"""Messages whose headers have names of any bytes: Python's Kafka client sends only text, so its C library is called."""

import ctypes
from collections.abc import Sequence
from typing import ClassVar

from confluent_kafka import cimpl
from tests.servers import KafkaServer

_PRODUCER, _OK, _COPY, _TIMEOUT_MS = 0, 0, 2, 180_000
_TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS, _HEADER = 1, 3, 4, 5, 7, 9


class _Bytes(ctypes.Structure):
    _fields_: ClassVar = [("at", ctypes.c_char_p), ("size", ctypes.c_size_t)]


class _Header(ctypes.Structure):
    _fields_: ClassVar = [("name", ctypes.c_char_p), ("at", ctypes.c_char_p), ("size", ctypes.c_ssize_t)]


class _Any(ctypes.Union):
    _fields_: ClassVar = [
        ("text", ctypes.c_char_p),
        ("number", ctypes.c_int),
        ("bytes", _Bytes),
        ("header", _Header),
        ("room", ctypes.c_char * 64),
    ]


class _Argument(ctypes.Structure):  # rd_kafka_vu_t
    _fields_: ClassVar = [("kind", ctypes.c_int), ("of", _Any)]


def send_raw(
    kafka: KafkaServer,
    topic: str,
    value: bytes | None,
    headers: Sequence[tuple[bytes, bytes]],
    key: bytes | None = None,
    times: int = 1,
) -> None:
    """Append a message to partition 0, once or several times, and wait until Kafka has acknowledged it."""
    client = ctypes.CDLL(cimpl.__file__)  # finds what it is linked to
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_produceva"):
        getattr(client, name).restype = ctypes.c_void_p
    conf = ctypes.c_void_p(client.rd_kafka_conf_new())
    servers = kafka.bootstrap_servers.encode()
    # Idempotent, as `send` is: a client whose answer is late sends the messages again.
    for option in ((b"bootstrap.servers", servers), (b"log_level", b"0"), (b"enable.idempotence", b"true")):
        assert client.rd_kafka_conf_set(conf, *option, None, ctypes.c_size_t(0)) == _OK
    producer = ctypes.c_void_p(client.rd_kafka_new(_PRODUCER, conf, None, ctypes.c_size_t(0)))
    assert producer
    given = [
        _Argument(_TOPIC, _Any(text=topic.encode())),
        _Argument(_PARTITION, _Any(number=0)),
        _Argument(_FLAGS, _Any(number=_COPY)),
        _Argument(_VALUE, _Any(bytes=_Bytes(value, len(value or b"")))),
        _Argument(_KEY, _Any(bytes=_Bytes(key, len(key or b"")))),
        *(_Argument(_HEADER, _Any(header=_Header(name, each, len(each)))) for name, each in headers),
    ]
    try:
        arguments, size = (_Argument * len(given))(*given), ctypes.c_size_t(len(given))
        for _ in range(times):
            assert client.rd_kafka_produceva(producer, arguments, size) is None
        assert client.rd_kafka_flush(producer, _TIMEOUT_MS) == _OK
    finally:
        client.rd_kafka_destroy(producer)
