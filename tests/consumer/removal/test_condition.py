"""The condition of an erasure: what it may contain, and what it finds."""

import gzip
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from consumer.removal.condition import Condition, read_condition
from consumer.removal.search import _of_bronze, is_in_file
from lakeproof.contracts import Contract, load_contract
from lakeproof.errors import UsageError

_CONTRACT = """\
apiVersion: v3.2.0
kind: DataContract
id: visits
version: 1.0.0
status: active
customProperties:
  - {property: eventTime, value: at}
schema:
  - name: visits
    properties:
      - {name: user_id, logicalType: string}
      - {name: number, logicalType: integer}
      - {name: at, logicalType: timestamp}
      - name: owner
        logicalType: object
        properties: [{name: mail, logicalType: string}]
"""


@pytest.fixture(scope="module")
def contract(tmp_path_factory: pytest.TempPathFactory) -> Contract:
    folder: Path = tmp_path_factory.mktemp("contracts")
    (folder / "visits.yaml").write_text(_CONTRACT)
    return load_contract(folder, "visits")


def of_person(text: str) -> Condition:
    return Condition(({"user_id": text},))


def test_fields_are_compared_with_values(contract: Contract) -> None:
    found = read_condition("user_id IN ('a', 'b') AND (number = 1 OR owner.mail = 'm')", contract)
    assert [dict(each) for each in found.alternatives] == [
        {"user_id": "a", "number": 1},
        {"user_id": "a", "owner.mail": "m"},
        {"user_id": "b", "number": 1},
        {"user_id": "b", "owner.mail": "m"},
    ]
    key = SecretStr("k" * 16)
    turned = read_condition("(owner.mail = 'm' OR 1 = number) AND user_id IN ('b', 'a')", contract)
    assert turned.keyed_hash(key) == found.keyed_hash(key) != found.keyed_hash(SecretStr("other" * 4))
    assert found.is_in_record({"user_id": "b", "owner": {"mail": "m"}})
    assert not found.is_in_record({"user_id": "b", "owner": {"mail": "n"}, "number": True})


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("user_id LIKE 'a%'", "cannot be used in an erasure"),
        ("number > 1", "cannot be used"),
        ("NOT user_id = 'a'", "cannot be used"),
        ("user_id = owner", "is not a value"),
        ("lower(user_id) = 'a'", "is not a field"),
        ("user = 'a'", "is not a field of the contract of visits"),
        ("user_id = 1", "cannot be compared with the field user_id"),
        ("user_id = ''", "cannot be compared"),
        ("number = '1'", "cannot be compared"),
        ("at = '2026-01-01'", "cannot be compared"),
        ("user_id = 'a' AND user_id = 'b'", "no record can meet"),
        ("user_id = 'a'; DROP TABLE x", "expected a condition"),
        ("user_id = ", "is not a condition"),
        ("true", "cannot be used"),
    ],
)
def test_anything_else_is_refused(where: str, said: str, contract: Contract) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        read_condition(where, contract)
    assert refused.value.hint


@given(st.text(min_size=1), st.booleans(), st.booleans())
def test_a_value_is_found_however_it_is_written(text: str, ascii_only: bool, packed: bool) -> None:
    record = {"friends": [{"name": text}], "other": 1}
    raw = json.dumps(record, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    raw = raw[:-8]  # cut short
    assert of_person(text).is_in_bytes(gzip.compress(raw) if packed else raw)


def test_a_part_of_a_word_is_somebody_else() -> None:
    assert of_person("u1").is_in_bytes(b'{"a": "u1"')
    assert of_person("u1").is_in_bytes(b'{"a": "\\u0075\\u0031"')
    assert of_person("u1").is_in_bytes('{"a": "u1"'.encode("utf-16"))
    for other in (b'{"a": "u12"', b'{"a": "xu1"', b'{"a": "u1_"'):
        assert not of_person("u1").is_in_bytes(other)
    for name, other in (("jos", "josé"), ("ric", "éric"), ("Анна", "Анналиса"), ("анна", "Жанна")):
        for ascii_only in (True, False):
            assert not of_person(name).is_in_bytes(json.dumps({"a": other}, ensure_ascii=ascii_only).encode())
            for text in (f"{name}\u00d72, {name}", f"«{name}»", f"محمد، {name}", f"{name}\n", f"我是{name}。"):
                assert of_person(name).is_in_bytes(json.dumps({"a": text}, ensure_ascii=ascii_only).encode())
    number = Condition(({"number": 5},))
    assert number.is_in_bytes(b'[{"number" : 5}, {')
    assert not number.is_in_bytes(b'[{"number": 55, "amount": 5}, {"number": 5.5')


@pytest.mark.parametrize(
    ("person", "others"),
    [
        ("ann@example.com", ["jo.ann@example.com", "mary-ann@example.com", "ann@example.com.au", "é.ann@example.com"]),
        ("u-1", ["u-1-2", "u-1.2", "tenant.u-1", "u-1@example.com", "u-1-é"]),
        ("4711", ["4711-9", "4711.9"]),
    ],
)
def test_a_part_of_a_longer_name_is_somebody_else(person: str, others: list[str]) -> None:
    for other in others:
        for ascii_only in (True, False):
            raw = json.dumps({"user_id": other, "a": f"see {other}"}, ensure_ascii=ascii_only).encode()
            assert not of_person(person).is_in_bytes(raw), other
            assert not is_in_file(of_person(person), raw[:-1] + b', "cut'), other
        assert not of_person(person).is_in_values([("user_id", other), ("_key", other.encode())]), other
    for text in (f"{person}.", f"{person}, then", f"<{person}>", f"to:{person}...", f"- {person} -", f"{person}/1"):
        assert person == "4711" or of_person(person).is_in_bytes(json.dumps({"a": text}).encode()), text


def test_damaged_files_are_searched_up_to_the_damage() -> None:
    whole = gzip.compress(b'{"a": "person-1"}' * 1000)
    assert of_person("person-1").is_in_bytes(whole[: len(whole) // 2])
    assert of_person("person-1").is_in_bytes(whole + b"\x1f\x8bnonsense")


def test_members_of_a_gzip_file_are_searched_with_zeros_between_them() -> None:
    parts = [gzip.compress(json.dumps({"a": name}).encode()) for name in ("person-1", "person-2")]
    packed = b"\0\0".join(parts) + b"\0"
    for name, is_there in (("person-1", True), ("person-2", True), ("person-3", False)):
        assert is_in_file(of_person(name), packed) == is_there


def test_records_of_a_file_are_searched_as_they_were_written() -> None:
    assert is_in_file(of_person("u-1"), b'[{"a": "x"}, {"user_id": "u-1", "user_id": "u-2"}]')
    account = Condition(({"account": Decimal("12345678901234567.89")},))
    assert is_in_file(account, b'\xef\xbb\xbf [{"account": 1}, {"account": 12345678901234567.89}]')
    assert not is_in_file(account, b'[{"account": 12345678901234567.88}]')
    both = Condition(({"tenant": "t1", "user_id": "u1"},))
    assert is_in_file(both, b'{"tenant": "t1", "user":\n{"user_id": "u1"}}')
    assert not is_in_file(both, b'{"tenant": "t1", "user_id": "u2"}\n{"tenant": "t2", "user_id": "u1"}\n')


@pytest.mark.parametrize("start", [b"PAR1", b"Obj\x01", b"Obj\x01\x00" + b"0" * 16 + b"\x02\x40"])
def test_files_that_only_look_like_parquet_or_avro_are_searched_as_bytes(start: bytes) -> None:
    assert is_in_file(of_person("u1"), start + b' {"a": "u1"}')
    assert not is_in_file(of_person("u1"), start)


def test_values_of_several_fields_must_be_in_one_record() -> None:
    both = Condition(({"tenant": "t1", "user_id": "u1"},))
    records = [{"tenant": "t1", "user_id": "u2"}, {"tenant": "t2", "user_id": "u1"}]
    assert not is_in_file(both, json.dumps(records).encode())
    assert is_in_file(both, json.dumps([*records, {"tenant": "t1", "user_id": "u1"}]).encode())


def test_a_text_of_digits_is_no_number_of_others() -> None:
    person = of_person("4711")
    for raw in (b'{"friend": "4711"}', b'{"user_id" :4711, "a": 1}', b'[{"a": 1}, {"user_id": "4711"}'):
        assert person.is_in_bytes(raw)
    assert person.is_in_bytes('{"friend": "4711"'.encode("utf-16"))
    assert person.is_in_values([("user_id", "4711")])
    assert person.is_in_values([("_key", b"4711")])
    for raw in (b'{"amount": 4711}', b'{"user_id": "47110"}', b"\x084711\x02", b"4711"):
        assert not person.is_in_bytes(raw)
    assert not person.is_in_values([("amount", 4711), ("user_id", "1")])


def test_values_under_a_former_name_of_a_field_are_found(tmp_path: Path) -> None:
    (tmp_path / "visits.yaml").write_text(_CONTRACT)
    before = read_condition("number = 4711", load_contract(tmp_path, "visits"))
    renamed = "{name: account, logicalType: integer, customProperties: [{property: renamedFrom, value: number}]}"
    text = _CONTRACT.replace("{name: number, logicalType: integer}", renamed).replace("1.0.0", "2.0.0")
    (tmp_path / "visits.yaml").write_text(text)
    person = read_condition("account = 4711", load_contract(tmp_path, "visits"))
    for raw in (b'{"number": 4711, "at"', b'{"account": 4711, "at"', b'{"number": 4711.0}'):  # two are cut short
        assert person.is_in_bytes(raw)
    assert not person.is_in_bytes(b'{"amount": 4711}')
    columns = {"number": [4711, 1], "_source": ["a", "a"], "_position": [0, 1], "_micro_batch_id": [0, 0]}
    rows = pa.RecordBatch.from_pydict(columns)  # of a table to which the contract was not applied yet
    (found,) = _of_bronze("bronze.visits", rows, load_contract(tmp_path, "visits"), person)
    assert found.entry.position == 0
    key = SecretStr("k" * 16)
    assert person.keyed_hash(key) == before.keyed_hash(key)  # so an erasure from before is finished, not begun again
