"""Files of receipts."""

import json
from pathlib import Path

import pytest
from tests.collector.running import event

from lakeproof.errors import UnavailableError, UsageError
from reader.verify.landed import receipts as receipts_module
from reader.verify.landed.receipts import read_receipts


def places(path: Path) -> list[tuple[str, int, int]]:
    return [(row["topic"], row["part"], row["place"]) for table in read_receipts(path) for row in table.to_pylist()]


def test_receipts_and_whole_answers(tmp_path: Path) -> None:
    one = {"topic": "t", "partition": 1, "offset": 2**63 - 1}
    answer = {"receipts": [{"topic": "t", "partition": 0, "offset": 7}, one]}
    path = tmp_path / "receipts.jsonl"
    path.write_text(f"{json.dumps(one | {'status': 202})}\n\n{json.dumps(answer)}\r\n" + '{"receipts": []}')
    assert places(path) == [("t", 1, 2**63 - 1), ("t", 0, 7), ("t", 1, 2**63 - 1)]
    path.write_text("")
    assert places(path) == []


def test_a_large_file_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts_module, "_CHUNK", 2)
    path = tmp_path / "receipts.jsonl"
    path.write_text("".join(f'{{"topic": "t", "partition": 0, "offset": {number}}}\n' for number in range(5)))
    assert [table.num_rows for table in read_receipts(path)] == [2, 2, 1]
    assert [place for _, _, place in places(path)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "expected valid JSON"),
        ("[]", "expected keys and values, got a list"),
        (json.dumps(event(1)), "topic: required, but missing"),
        ('{"topic": "t", "partition": 0}', "offset: required, but missing"),
        ('{"topic": "t", "partition": -1, "offset": 0}', "partition: "),
        ('{"topic": "t", "partition": 2147483648, "offset": 0}', "partition: "),
        ('{"topic": "t", "partition": 0, "offset": 9223372036854775808}', "offset: "),
        ('{"topic": "t", "partition": 0, "offset": "1"}', "offset: "),
        ('{"receipts": [{}]}', "receipts.0.topic: required, but missing"),
        ("[" * 2000, "expected valid JSON"),
    ],
)
def test_what_is_not_a_receipt_is_refused_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "receipts.jsonl"
    path.write_text(f'{{"topic": "t", "partition": 0, "offset": 1}}\n{line}\n')
    with pytest.raises(UsageError) as error:
        places(path)
    assert error.value.message.startswith(f"{path}:2 is not a receipt: ")
    assert said in error.value.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"Cannot read .*: No such file or directory"):
        places(tmp_path / "nothing")
