"""Unpacking agrees with Python's own module, up to a limit; and verify's version agrees with it."""

import gzip
import zlib
from time import thread_time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.selection import examples

from consumer.sources.files.unpack import TooLargeError, UnpackError, unpack, unpack_beginning
from reader.verify.landed import unpack as reader_unpack

MEMBER = gzip.compress(b"lake", mtime=0)
TOO_LARGE, DAMAGED = "too large", "damaged"
ENOUGH = 1 << 40


def consumer(packed: bytes, most: int) -> bytes | str:
    try:
        return unpack(packed, most)
    except UnpackError:
        return DAMAGED
    except TooLargeError:
        return TOO_LARGE


def reader(packed: bytes, most: int) -> bytes | str:
    try:
        found = reader_unpack.unpack(packed, most)
    except reader_unpack.DamagedError:
        return DAMAGED
    return TOO_LARGE if found is None else found


def consumer_beginning(packed: bytes, most: int) -> bytes | None:
    try:
        found = unpack_beginning(packed, most)
    except TooLargeError:
        return None
    return found[0] if found else None


def python(packed: bytes) -> bytes | str:
    try:
        return gzip.decompress(packed)
    except (OSError, EOFError, zlib.error):
        return DAMAGED


@pytest.mark.parametrize("unpacked", [consumer, reader])
@pytest.mark.parametrize(
    ("packed", "due"),
    [
        (b"", b""),
        (MEMBER, b"lake"),
        (MEMBER * 3, b"lake" * 3),
        (gzip.compress(b"", mtime=0) * 3 + MEMBER, b"lake"),
        (MEMBER + bytes(5), b"lake"),
        (MEMBER + bytes(200_000) + MEMBER + bytes(1), b"lakelake"),
        (bytes(3) + MEMBER, DAMAGED),
        (bytes(3), DAMAGED),
        (MEMBER + b"x", DAMAGED),
        (MEMBER + bytes(3) + b"x", DAMAGED),
        (MEMBER + b"\x1f", DAMAGED),
        (MEMBER + MEMBER[:-1], DAMAGED),
        (MEMBER[:-8] + bytes(8), DAMAGED),  # another checksum
        (zlib.compress(b"lake"), DAMAGED),
        (b'[{"a":1}]', DAMAGED),
    ],
)
def test_what_is_unpacked(unpacked, packed, due):
    assert unpacked(packed, ENOUGH) == python(packed) == due


@pytest.mark.parametrize("unpacked", [consumer, reader])
def test_the_limit_is_met_to_the_byte_and_before_any_damage_behind_it(unpacked):
    for size in (0, 1, 511, 512, 100_000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5_000_000):
        packed = gzip.compress(bytes(size), 1)
        assert unpacked(packed, size) == bytes(size)
        assert unpacked(packed[:-1], size) == DAMAGED
        if size:
            assert unpacked(packed, size - 1) == TOO_LARGE
            assert unpacked(packed[:-1], size - 1) == TOO_LARGE
            assert unpacked(packed[:-1] + b"x", size - 1) == TOO_LARGE
    assert unpacked(MEMBER * 3, 12) == b"lake" * 3
    assert unpacked(MEMBER * 3 + b"x", 11) == TOO_LARGE


@settings(max_examples=examples(500), deadline=None)
@given(
    st.lists(st.tuples(st.binary(max_size=600), st.integers(0, 9), st.integers(0, 3)), max_size=4),
    st.lists(st.tuples(st.integers(0, 3_000), st.binary(max_size=3), st.integers(0, 3)), max_size=2),
    st.integers(0, 1_500),
)
@example([(b"a" * 600, 9, 0)], [(3, b"\xe0", 1)], 600)  # reserved flags
def test_consumer_and_reader_agree_on_any_bytes(members, edits, most):
    packed = b"".join(gzip.compress(data, level, mtime=0) + bytes(zeros) for data, level, zeros in members)
    for at, inserted, removed in edits:
        packed = packed[:at] + inserted + packed[at + removed :]
    found = consumer(packed, most)
    assert found == reader(packed, most)
    assert consumer_beginning(packed, most) == reader_unpack.unpack_beginning(packed, most)
    assert (consumer_beginning(packed, most) is None) == (found != DAMAGED)
    if found != DAMAGED:  # Python's module accepts headers that zlib refuses
        whole = python(packed)
        assert found == whole or (found == TOO_LARGE and (whole == DAMAGED or len(whole) > most))


@pytest.mark.parametrize("unpacked", [consumer, reader])
@pytest.mark.parametrize("between", [b"", bytes(40)])
def test_many_members_take_time_in_proportion(unpacked, between):
    def seconds(members: int) -> float:
        packed = (MEMBER + between) * members
        best = 1e9
        for _ in range(3):
            begin = thread_time()
            assert len(unpacked(packed, ENOUGH)) == 4 * members
            best = min(best, thread_time() - begin)
        return best

    assert seconds(32_000) < 10 * seconds(8_000)


LINES = b"".join(b'{"id": "o%d", "amount": %d}\n' % (number, number * number) for number in range(400))


@pytest.mark.parametrize("beginning", [consumer_beginning, reader_unpack.unpack_beginning])
def test_of_a_file_that_was_cut_all_that_comes_out_is_taken(beginning):
    packed = gzip.compress(LINES[:100], mtime=0) + bytes(2) + gzip.compress(LINES[100:], mtime=0)
    longest = b""
    for end in range(1, len(packed)):
        found = beginning(packed[:end], ENOUGH)
        if found is None:  # the cut is at the end of a member
            assert unpack(packed[:end], ENOUGH) == LINES[:100]
            continue
        assert LINES.startswith(found)
        assert len(found) >= len(longest)
        longest = found
    assert longest == LINES
    assert beginning(packed, ENOUGH) is None
    assert beginning(packed[:-20], 150) is None


@pytest.mark.parametrize("beginning", [consumer_beginning, reader_unpack.unpack_beginning])
def test_nothing_of_a_damaged_member_is_taken(beginning):
    first, second = gzip.compress(LINES[:5_000], mtime=0), gzip.compress(LINES[5_000:], mtime=0)
    for at in range(10, len(second) - 8, 7):
        damaged = bytearray(second)
        damaged[at] ^= 16
        assert beginning(first + bytes(damaged), ENOUGH) in (LINES[:5_000], None)
