"""Codes of the reasons why a unit is a dead letter."""

from enum import StrEnum
from typing import Any


class Reason(StrEnum):
    """Code of a reason: the first ones are about a whole batch, the others about a record."""

    EMPTY_BATCH = "empty_batch"  # the file is empty, or contains only white space
    NOT_A_BATCH = "not_a_batch"  # valid JSON, but not an array, an object or newline-delimited objects
    CORRUPT_BATCH = "corrupt_batch"  # cannot be split into records: truncated, not JSON, or followed by other data
    UNDECODABLE = "undecodable"  # compressed, but it cannot be decompressed
    CHANGED = "changed"  # the file was overwritten between listing and reading, so the listed content is lost
    ABSENT = "absent"  # removed before it was read, and given up with `consumer give-up`
    TOMBSTONE = "tombstone"  # a Kafka message without a value: it says that the record with its key was deleted
    INVALID_HEADERS = "invalid_headers"  # a Kafka message with a header whose name is not UTF-8: no header can be read
    BATCH_TOO_LARGE = "batch_too_large"  # too large to read or keep; the content is only in the landed file

    RECORD_TOO_LARGE = "record_too_large"  # above `LAKE_MAX_RECORD_BYTES`; the content is only in the landed file
    MALFORMED_RECORD = "malformed_record"  # the record is not valid JSON: NaN, single quotes, a trailing comma, …
    INVALID_UTF8 = "invalid_utf8"  # its bytes, or an escape sequence in it, are not valid Unicode
    TOO_DEEP = "too_deep"  # nested too deeply
    TOO_MANY_VALUES = "too_many_values"  # would take too much memory
    NOT_AN_OBJECT = "not_an_object"  # valid JSON, but not an object
    DUPLICATE_KEY = "duplicate_key"  # an object has the same key twice
    UNKNOWN_FIELD = "unknown_field"  # a field that is not in the contract
    MISSING_FIELD = "missing_field"  # a required field is missing
    NULL_FIELD = "null_field"  # a required field is null
    WRONG_TYPE = "wrong_type"  # the JSON value does not have the field's type
    WRONG_FORMAT = "wrong_format"  # a string that is not a valid timestamp or date
    OUT_OF_RANGE = "out_of_range"  # does not fit the column exactly, or the contract's minimum and maximum
    NOT_ALLOWED = "not_allowed"  # a value that is not in the contract's list of allowed values
    WRONG_LENGTH = "wrong_length"  # a string that is shorter or longer than the contract allows
    PATTERN_MISMATCH = "pattern_mismatch"  # a string that does not match the contract's pattern
    RULE_VIOLATED = "rule_violated"  # a rule is false; the detail starts with the rule's name

    TRANSFORM_FAILED = "transform_failed"  # of a replay: the transform raised an error, or did not return bytes


NOT_READ = frozenset({Reason.CHANGED, Reason.ABSENT})
"""Reasons of files that could not be read as listed."""
WITHOUT_BYTES = NOT_READ | {Reason.TOMBSTONE}
"""Reasons of whole batches whose bytes were never available."""
OF_BATCHES = WITHOUT_BYTES | {
    Reason.EMPTY_BATCH,
    Reason.NOT_A_BATCH,
    Reason.CORRUPT_BATCH,
    Reason.UNDECODABLE,
    Reason.INVALID_HEADERS,
    Reason.BATCH_TOO_LARGE,
}
"""Reasons of whole batches; the others are of records."""


def reason_sets(reasons: Any) -> list[str]:
    """Join the sorted codes of each unit's reasons, an Arrow array of lists, with ``+``, as in the ledger."""
    codes: list[str] = reasons.flatten().field("code").to_pylist()
    lengths = reasons.value_lengths().to_pylist()
    if all(length == 1 for length in lengths):
        return codes
    sets, begin = [], 0
    for length in lengths:
        end = begin + (length or 0)
        sets.append(codes[begin] if length == 1 else "+".join(sorted(set(codes[begin:end]))))
        begin = end
    return sets
