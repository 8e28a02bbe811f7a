"""Random contracts and records for the two judges, made faster than Hypothesis makes them: by the million.

    python -m tests.lakeproof.judge.fuzzing --records 1000000 --contracts 200 --seed 1

holds the native judge to the exact one on records of each shipped contract, and of random ones, in all wrappings and
with all drift policies. Exit code 1 at the first difference, which is printed.
"""

import json
import random
import string
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer
from tests.lakeproof.judge.test_native import (
    BOUNDS,
    DECIMAL_BOUNDS,
    FIELD_NAMES,
    FITTING,
    FORMS,
    NAMES,
    NUMBERS,
    PATTERNS,
    TIMES,
    TOKENS,
    judged,
)

from lakeproof.contracts import (
    ISO_8601,
    Bound,
    Constraints,
    Contract,
    DecimalType,
    DriftPolicy,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
    Type,
    load_contract,
)
from lakeproof.judge.batch import Judge
from lakeproof.settings import Limits

CONTRACTS = Path(__file__).parents[3] / "contracts"
SHIPPED = ("events", "clickstream", "sensors")
RUN = 400  # number of records judged together
# This limit in bytes is now and then less than the size of a record.
SMALL = 150
SIGNS = [b'"', b"\\", b":", b",", b"{", b"}", b"[", b"]", b"0", b"-", b" "]


# A field with several constraints, alone in its contract: in others, a record rarely drifts for several reasons.
_DRIFTING = Field(
    "a", PrimitiveType.STRING, allowed=("a", "1"), constraints=Constraints(max_length=3, pattern="^[a-z]+$")
)


class Made:
    """Generates contracts and records from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def contract(self) -> Contract:
        fields = (_DRIFTING,) if self.random.random() < 0.1 else self._fields(3)
        return Contract("s", "1", "", fields, (), "", drift=self.random.choice(list(DriftPolicy)))

    def _fields(self, depth: int) -> tuple[Field, ...]:
        pick = self.random
        names = pick.sample(FIELD_NAMES + [f"field{number}" for number in range(20)], pick.randint(1, 9))
        return tuple(self._field(name, depth) for name in names)

    def _field(self, name: str, depth: int) -> Field:
        pick = self.random
        kind = self._type(depth)
        required = pick.random() < 0.5
        if isinstance(kind, ObjectType | MapType | ListType):
            return Field(name, kind, required)
        allowed = tuple(pick.sample(["a", "1", "1.0", "-0", "true", "", "ä😀"], 3)) if pick.random() < 0.1 else ()
        time = pick.choice(FORMS) if kind is PrimitiveType.TIMESTAMP and pick.random() < 0.6 else ISO_8601
        return Field(name, kind, required, allowed, constraints=self._constraints(kind), time=time)

    def _type(self, depth: int) -> Type:
        pick = self.random
        form = pick.randint(0, 9 if depth else 6)
        if form < 6:
            return pick.choice(list(PrimitiveType))
        if form == 6:
            return pick.choice([DecimalType(10, 2), DecimalType(38, 0), DecimalType(38, 38), DecimalType(18, 6)])
        inner = self._type(depth - 1)
        return {7: MapType(inner), 8: ListType(inner)}.get(form) or ObjectType(self._fields(depth - 1))

    def _constraints(self, kind: PrimitiveType | DecimalType) -> Constraints:
        pick = self.random
        if pick.random() < 0.6:
            return Constraints()
        if kind in (PrimitiveType.STRING, PrimitiveType.SCALAR):
            return Constraints(
                min_length=pick.choice([None, 0, 1, 2]),
                max_length=pick.choice([None, 1, 3, 20]),
                pattern=pick.choice([None, *PATTERNS]),
            )
        values: list[Any] = DECIMAL_BOUNDS if isinstance(kind, DecimalType) else BOUNDS.get(kind, [])
        if not values:
            return Constraints()
        exclusive = kind not in (PrimitiveType.INT, PrimitiveType.LONG) and pick.random() < 0.5
        ends = [Bound(pick.choice(values), exclusive) if pick.random() < 0.7 else None for _ in range(2)]
        return Constraints(*ends)

    def record(self, contract: Contract) -> bytes:
        """Return a record that mostly fits, with faults of any kind."""
        text = self._object(contract.fields)
        while self.random.random() < 0.08:
            text = self._damaged(text)
        return text

    def _object(self, fields: tuple[Field, ...]) -> bytes:
        pick = self.random
        pairs = [(each.name, each.type) for each in fields if each.required or pick.random() < 0.7]
        chance = pick.random()
        if chance < 0.03 and pairs:
            pairs.append(pick.choice(pairs))
        elif chance < 0.08:
            pairs.append((pick.choice(NAMES), PrimitiveType.SCALAR))
        elif chance < 0.11:
            pairs = pairs[1:]
        if pick.random() < 0.2:
            pick.shuffle(pairs)
        return self._members(pairs, {each.name: each for each in fields})

    def _members(self, pairs: list[tuple[str, Type]], fields: dict[str, Field]) -> bytes:
        texts = [
            self._space() + self._key(name) + self._space() + b":" + self._value(kind, fields.get(name))
            for name, kind in pairs
        ]
        return b"{" + b",".join(texts) + b"}"

    def _key(self, name: str) -> bytes:
        chance = self.random.random()
        if chance < 0.02:
            return b'"' + b"".join(b"\\u%04x" % ord(letter) for letter in name if ord(letter) < 1 << 16) + b'"'
        return json.dumps(name, ensure_ascii=chance < 0.5).encode()

    def _space(self) -> bytes:
        return self.random.choice([b" ", b"\n\t", b"\r"]) if self.random.random() < 0.1 else b""

    def _value(self, kind: Type, field: Field | None) -> bytes:
        pick = self.random
        chance = pick.random()
        if chance < 0.03:
            return pick.choice(TOKENS)
        if chance < 0.06:
            return b"null"
        if field and field.allowed and chance < 0.8:
            text = pick.choice(field.allowed)
            return text.encode() if kind is not PrimitiveType.STRING and text else json.dumps(text).encode()
        return self._space() + self._fitting(kind) + self._space()

    def _fitting(self, kind: Type) -> bytes:
        pick = self.random
        match kind:
            case ObjectType(fields):
                return self._object(fields)
            case MapType(value):
                names = pick.choices(NAMES, k=pick.randint(0, 3))
                names = names if pick.random() < 0.1 else list(dict.fromkeys(names))
                return self._members([(name, value) for name in names], {})
            case ListType(item):
                return b"[" + b",".join(self._value(item, None) for _ in range(pick.randint(0, 3))) + b"]"
            case DecimalType():
                return self._number() if pick.random() < 0.7 else pick.choice(NUMBERS)
        if kind is PrimitiveType.STRING and pick.random() < 0.7:
            letters = string.ascii_letters + string.digits + "äß€😀\u2028\x7f \"\\/\n'"
            text = "".join(pick.choices(letters, k=pick.choice([0, 1, 3, 7, 8, 9, 30, 90])))
            return json.dumps(text, ensure_ascii=pick.random() < 0.3).encode()
        if kind in (PrimitiveType.DOUBLE, PrimitiveType.FLOAT, PrimitiveType.SCALAR) and pick.random() < 0.6:
            return self._number()
        if kind in (PrimitiveType.INT, PrimitiveType.LONG) and pick.random() < 0.6:
            return b"%d" % pick.randint(-(1 << pick.randint(1, 65)), 1 << pick.randint(1, 65))
        if kind in (PrimitiveType.TIMESTAMP, PrimitiveType.DATE) and pick.random() < 0.5:
            return self._time()
        return pick.choice(FITTING[kind])

    def _number(self) -> bytes:
        pick = self.random
        if pick.random() < 0.3:
            return repr(pick.uniform(-1, 1) * 10 ** pick.randint(-320, 308)).encode().replace(b"inf", b"1e999")
        digits = pick.randint(-(10 ** pick.randint(1, 40)), 10 ** pick.randint(1, 40))
        text = format(Decimal(digits).scaleb(-pick.randint(0, 40)), pick.choice("fe")).encode()
        return text.replace(b"e+", pick.choice([b"e+", b"E", b"e"]))

    def _time(self) -> bytes:
        pick = self.random
        day = f"{pick.randint(0, 9999):04}-{pick.randint(0, 13):02}-{pick.randint(0, 32):02}"
        if pick.random() < 0.2:
            return f'"{day}"'.encode()
        time = f"{pick.randint(0, 24):02}:{pick.randint(0, 60):02}" + pick.choice(["", f":{pick.randint(0, 60):02}"])
        fraction = f".{pick.randint(0, 10 ** pick.randint(1, 10)):0{pick.randint(1, 9)}}" if len(time) > 5 else ""
        zone = pick.choice(
            ["Z", "Z", "", "+01:00", "-0130", "+14", f"+{pick.randint(0, 25):02}:{pick.randint(0, 60):02}"]
        )
        return f'"{day}{pick.choice("TT  t")}{time}{pick.choice(["", fraction])}{zone}"'.encode()

    def _damaged(self, text: bytes) -> bytes:
        pick = self.random
        at = pick.randrange(len(text) + 1)
        match pick.randint(0, 4):
            case 0:
                return (
                    text[:at]
                    + pick.choice([b'"', b"\\", b":", b",", b"{", b"}", b"[", b"]", b"0", b"-", b" "])
                    + text[at:]
                )
            case 1:
                return text[:at] + bytes([pick.randrange(256)]) + text[at + 1 :]
            case 2:
                return text[:at] + text[at + pick.randint(1, 5) :]
            case 3:
                return text[:at] + pick.choice(TOKENS + TIMES) + text[at:]
        end = min(len(text), at + pick.randint(1, 20))
        return text[:end] + text[at:end] + text[end:]


def batches(made: Made, contract: Contract, count: int) -> Iterator[list[bytes]]:
    """Yield runs of batches of random records, in any wrapping."""
    while count > 0:
        records = [made.record(contract) for _ in range(min(count, RUN))]
        count -= len(records)
        match made.random.randint(0, 3):
            case 0:
                yield [b"[" + b",".join(records) + b"]"]
            case 1:
                yield [b"\n".join(records)]
            case 2:
                yield records
            case _:
                few = [records[at : at + 3] for at in range(0, len(records), 3)]
                yield [b" [" + b" , ".join(each) + b"]" for each in few]


def check(contract: Contract, made: Made, count: int) -> int:
    """Judge random records of a contract with both judges; return the number of units."""
    found = 0
    for run in batches(made, contract, count):
        limits = Limits(record_bytes=SMALL) if made.random.random() < 0.05 else Limits()
        expected = judged(Judge(contract, limits, "python"), run)
        native = judged(Judge(contract, limits, "native"), run)
        found += len(expected)
        if native != expected:
            places = [place for place in {**native, **expected} if native.get(place) != expected.get(place)]
            raise AssertionError(_told(contract, run, places, native, expected))
    return found


def _told(contract: Contract, run: list[bytes], places: list[Any], native: Any, expected: Any) -> str:
    place = min(places)
    return (
        f"{len(places)} differences, the first at {place}\n{contract.fields}\n{contract.drift}\n"
        f"native:  {native.get(place)}\nexact:   {expected.get(place)}\n{run[place[0]]!r:.4000}"
    )


def shipped() -> Iterator[Contract]:
    """Yield the contracts of the demo, with each drift policy."""
    for name in SHIPPED:
        contract = Judge(load_contract(CONTRACTS, name)).contract
        yield from (replace(contract, drift=policy) for policy in DriftPolicy)


def main(
    records: Annotated[int, typer.Option(help="Records of each shipped contract, and of all random ones.")] = 10_000,
    contracts: Annotated[int, typer.Option(help="Random contracts.")] = 50,
    seed: Annotated[int, typer.Option(help="Decides what is judged.")] = 1,
) -> None:
    """Hold the native judge to the exact one."""
    made = Made(seed)
    try:
        for contract in shipped():
            count = check(contract, made, records // len(DriftPolicy))
            typer.echo(f"{contract.stream}, {contract.drift}: {count:,} units alike")
        count = sum(check(made.contract(), made, records // contracts) for _ in range(contracts))
        typer.echo(f"{contracts} random contracts: {count:,} units alike")
    except AssertionError as error:
        typer.echo(error)
        raise typer.Exit(1) from error


if __name__ == "__main__":
    typer.run(main)
