"""Content of Avro files, the manifests of a table, without interpretation."""

import zlib
from io import BytesIO


def unpacked_avro(content: bytes) -> bytes:
    """Return the header of a file, followed by its unpacked blocks."""
    stream = BytesIO(content)
    stream.seek(4)
    metadata = {}
    while count := _long(stream):
        if count < 0:
            _long(stream)
        for _ in range(abs(count)):
            key = _bytes(stream)
            metadata[key] = _bytes(stream)
    header = content[: stream.tell()]
    stream.read(16)
    found = [header]
    while stream.tell() < len(content):
        _long(stream)
        block = _bytes(stream)
        found.append(zlib.decompress(block, -15) if metadata.get(b"avro.codec") == b"deflate" else block)
        stream.read(16)
    return b"".join(found)


def _bytes(stream: BytesIO) -> bytes:
    return stream.read(_long(stream))


def _long(stream: BytesIO) -> int:
    value = shift = 0
    while True:
        (byte,) = stream.read(1)
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1)
