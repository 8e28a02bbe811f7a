import os

import pytest

from lakeproof.proxies import reach_this_machine_directly

NAMES = ("no_proxy", "NO_PROXY")


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        ("", "", "127.0.0.1,localhost"),
        ("a.example, localhost", "", "a.example,localhost,127.0.0.1"),
        ("a.example", "b.example,a.example", "a.example,b.example,127.0.0.1,localhost"),
        ("*", "a.example", "*"),
    ],
)
def test_this_machine_is_added_to_what_no_proxy_gets(
    monkeypatch: pytest.MonkeyPatch, lower: str, upper: str, expected: str
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", lower)
    monkeypatch.setenv("NO_PROXY", upper)
    for _ in range(2):
        reach_this_machine_directly()
        assert [os.environ[name] for name in NAMES] == [expected, expected]


def test_an_environment_without_a_proxy_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    before = dict(os.environ)
    reach_this_machine_directly()
    assert dict(os.environ) == before
