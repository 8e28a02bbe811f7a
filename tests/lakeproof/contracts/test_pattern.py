"""An accepted pattern has the same meaning in RE2, which judges, and in ECMA-262, which registries use."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import regress
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.selection import examples

from lakeproof.contracts.pattern import MAX_SIZE, PatternError, portable

LETTERS = st.sampled_from([*"ab1_- .^$\\{}[]()|?+*/\n\r\t\v\x00", "ä", "😀", "\u2028", "\u00a0", "٣", "\x1c"])
TEXTS = st.lists(st.text(LETTERS, max_size=6), min_size=1, max_size=8)
MEMBERS = st.sampled_from(
    ["a", "b", "a-c", "0-9", r"\d", r"\w", r"\-", r"\]", "ä-ü", "😀", "^", " ", r"\n", "\u2028", r"\v"]
)
CLASSES = st.builds(
    lambda start, members, end: f"[{start}{''.join(members)}{end}]",
    st.sampled_from(["", "^"]),
    st.lists(MEMBERS, min_size=1, max_size=3),
    st.sampled_from(["", "-"]),
).filter(lambda text: text != "[^]")
ATOMS = CLASSES | st.sampled_from(["a", "b", "1", ".", r"\.", r"\d", r"\D", r"\w", r"\W", r"\n", r"\/", "/", "ä", "😀"])
REPEATS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "{1,2}?"])


def joined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(parts, max_size=4).map("".join)


PATTERNS = st.recursive(
    joined(st.builds(str.__add__, ATOMS, REPEATS) | st.sampled_from(["^", "$"])),
    lambda inner: (
        st.builds(
            lambda opening, first, second, repeat: f"{opening}{first}|{second}){repeat}",
            st.sampled_from(["(", "(?:"]),
            inner,
            inner,
            REPEATS,
        )
        | st.builds(str.__add__, inner, inner)
    ),
    max_leaves=4,
)


def found(pattern: str, texts: list[str]) -> list[bool]:
    return pc.match_substring_regex(pa.array(texts, pa.string()), portable(pattern)).to_pylist()


@settings(max_examples=examples(400), deadline=None)
@given(PATTERNS, TEXTS)
@example(".", ["\n", "\r", "\u2028", "\u2029", "\x85", "\v", "a"])
@example("a$", ["a\n", "a"])
@example(r"\d", ["٣", "3"])
def test_both_find_the_same(pattern: str, texts: list[str]) -> None:
    expected = [regress.Regex(pattern, "u").find(text) is not None for text in texts]
    assert found(pattern, texts) == expected


@settings(max_examples=examples(400), deadline=None)
@given(st.text(LETTERS, max_size=8), TEXTS)
def test_what_is_not_refused_is_read_alike(pattern: str, texts: list[str]) -> None:
    try:
        portable(pattern)
    except PatternError:
        return
    test_both_find_the_same.hypothesis.inner_test(pattern, texts)


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "a)", "[", "[]", "[^]", "[a", "[[a]", "[b-a]", r"[\d-z]", "*", "a**", "a{2}{3}", "a{3,2}", "a{1001}",
        "{", "a{", "a{,2}", "}", "]", "\\", r"\b", r"\s", r"\1", r"\p{L}", r"\u0061", r"\x61", r"\-", "^*", "$+", "a++",
        "(?=a)", "(?!a)", "(?<=a)", "(?i)a", "(?P<n>a)", "(?<n>a)", "(?>a)", "(" * 1_000, "a" * (MAX_SIZE + 1),
        "(?:a{100}){11}", "((a{20}){20}){20}", r"[\D]", r"[^\W]", "[a-bd-eg-hj-k]{400}",
    ],
)  # fmt: skip
def test_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        portable(pattern)


@pytest.mark.parametrize(
    "pattern", [".{999}", "[^ä-ü]{999}", "(?:[^a]|[^b]){200}", "(?:(?:.?){22}){21}", "(" * 50 + ")" * 50, r"\W{999}"]
)
def test_what_is_small_enough_fits_inportable(pattern: str) -> None:
    assert found(pattern, ["😀" * 999]) == [True]


def test_no_pattern_takes_time_beyond_the_length_of_the_text() -> None:
    """A backtracking engine would never finish on these."""
    for pattern in ("^(a*)*$", "^(a|a)*$", "^(?:a?){30}a{30}b$", "a*a*a*a*a*a*b"):
        assert found(pattern, ["a" * 100_000 + "!"]) == [False]
