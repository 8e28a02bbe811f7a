"""Faults put into the native judge on purpose. Each must be found by the tests that compare the two judges.

    python -m tests.lakeproof.judge.native_mutants [NAME…]

builds each mutant beside the installed judge, and runs the fuzzer on it. Exit code 1 if a mutant is not found.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

ROOT = Path(__file__).parents[3]
CRATE = ROOT / "src" / "native-judge"


@dataclass(frozen=True)
class Mutant:
    """A replacement for a line of the core."""

    name: str
    file: str
    old: str
    new: str


MUTANTS = (
    Mutant("leading zeros are read", "tree", "whole == 0 || (whole > 1 && first == Some(b'0'))", "whole == 0"),
    Mutant("control characters are read", "tree", " | block.cmp_lt(SPACES)", ""),
    Mutant("lone surrogates are read", "tree", "0xDC00..=0xDFFF => Err(Unread),", "0xDC00..=0xDFFF => Ok(at + 6),"),
    Mutant("surrogates are put together wrongly", "tree", "code = 0x10000 +", "code = 0x10001 +"),
    Mutant("data behind an array is ignored", "units", "if is_last && behind != end - 1 {", "if false {"),
    Mutant("a bad element takes the next along", "scan", "b',' | b']' => {", "b']' => {"),
    Mutant(
        "repeated fields are not seen", "judge", "undecided |= self.slots[first + field] != 0", "undecided |= false"
    ),
    Mutant(
        "repeated keys are not seen", "judge", "self.faults.undecided |= is_repeated", "self.faults.undecided |= false"
    ),
    Mutant(
        "keys with escapes are never repeated", "judge", "text_of(key, self.text) == text_of(other, self.text)", "false"
    ),
    Mutant(
        "null is taken for a required field",
        "judge",
        "            if field.required {",
        "            if field.required && found == 0 {",
    ),
    Mutant("unknown fields are ignored", "judge", "None => has_unknown = true,", "None => {}"),
    Mutant(
        "an array's index is off by one",
        "judge",
        "let mut position = 0;\n        while child < node.next",
        "let mut position = 1;\n        while child < node.next",
    ),
    Mutant("allowed values are not looked at", "judge", "if !scalar.allowed.is_empty() {", "if false {"),
    Mutant("a pattern is not looked at", "judge", "!pattern.regex.is_match(text)", "false"),
    Mutant("lengths are of bytes", "judge", "text.chars().count()", "text.len()"),
    Mutant("exclusive bounds are inclusive", "judge", "if bound.exclusive {", "if false {"),
    Mutant(
        "values that drifted stay",
        "judge",
        "column.append_null(self.row);\n        }\n    }\n\n    fn hold_text",
        "}\n    }\n\n    fn hold_text",
    ),
    Mutant(
        "a rolled back row leaves its texts",
        "columns",
        "Values::Texts(texts) => texts.truncate(rows),",
        "Values::Texts(_) => {}",
    ),
    Mutant("a validity bit is not cleared", "columns", "self.bits[byte] &= !(1 << bit);", ""),
    Mutant("integers wrap", "scalars", ".filter(|number| number >> (bits - 1) == number >> 63)", ""),
    Mutant(
        "infinity is a number",
        "scalars",
        "Ok(number) if number.is_finite() => Ok(number),",
        "Ok(number) => Ok(number),",
    ),
    Mutant(
        "decimals are rounded", "scalars", "if shift < 0 || count as i64", "shift = shift.max(0);\n    if count as i64"
    ),
    Mutant("leap years every four years", "scalars", "(year % 100 != 0 || year % 400 == 0)", "true"),
    Mutant(
        "offsets have the other sign", "scalars", "self.take(b'-').is_some() { -1 }", "self.take(b'-').is_some() { 1 }"
    ),
    Mutant("nanoseconds are cut off", "scalars", "if nanoseconds % 1_000 != 0 {", "if false {"),
    Mutant("a long value is shown whole", "faults", "const MAX_SHOWN: usize = 80;", "const MAX_SHOWN: usize = 81;"),
    Mutant(
        "codes of drift are not sorted",
        "faults",
        "self.reasons.sort_unstable();",
        "self.reasons.sort_unstable_by(|one, other| other.cmp(one));",
    ),
    Mutant("controls in paths are not escaped", "faults", "'\\0'..='\\u{1f}' | '\\u{7f}' =>", "'\\0' =>"),
    Mutant(
        "a large record is judged",
        "units",
        "_ if size > self.limits.record_bytes =>",
        "_ if size > self.limits.record_bytes * 2 =>",
    ),
)


def build(mutant: Mutant, folder: Path) -> Path:
    """Build a mutant; return the folder with its module."""
    subprocess.run([CRATE / "lock.sh"], check=True)
    crate = folder / "crate"
    shutil.copytree(CRATE, crate)
    source = crate / "src" / f"{mutant.file}.rs"
    text = source.read_text()
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.name}: {mutant.old!r} is {text.count(mutant.old)} times in {source.name}")
    source.write_text(text.replace(mutant.old, mutant.new))
    target = ROOT / "target" / "mutants"
    # Faster to build than the installed module, with the same fault.
    options = {
        "CARGO_PROFILE_RELEASE_LTO": "off",
        "CARGO_PROFILE_RELEASE_OPT_LEVEL": "1",
        "CARGO_TARGET_DIR": str(target),
    }
    subprocess.run(
        ["cargo", "build", "--release", "--locked", "--quiet"],
        cwd=crate,
        env=os.environ | options | {"RUSTFLAGS": "-Awarnings", "PYO3_PYTHON": sys.executable},
        check=True,
    )
    suffix = sysconfig.get_config_var("SHLIB_SUFFIX")
    module = folder / "module"
    module.mkdir()
    shutil.copy(target / "release" / f"libnative_judge{suffix}", module / f"native_judge.abi3{suffix}")
    return module


def is_found(module: Path, records: int) -> str:
    """Return the first difference that the fuzzer finds with a mutant; empty if it finds none."""
    path = os.pathsep.join([str(module), str(ROOT), str(ROOT / "src")])
    command = [sys.executable, "-m", "tests.lakeproof.judge.fuzzing", "--records", str(records), "--contracts", "40"]
    ran = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    return "" if ran.returncode == 0 else (ran.stdout + ran.stderr).strip() or "it ended without a word"


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Only mutants whose names contain one of these.")] = None,
    records: Annotated[int, typer.Option(help="Records that each is tried on.")] = 20_000,
) -> None:
    """Build every mutant, and say whether it is found."""
    missed = 0
    for mutant in MUTANTS:
        if names and not any(name in mutant.name for name in names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = is_found(build(mutant, Path(folder)), records)
        missed += not found
        words = next((line for line in found.splitlines() if "differences" in line), found[-100:])
        typer.echo(f"{'found' if found else 'MISSED'}: {mutant.name} · {words}")
    if missed:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
