"""Proxies of the environment."""

import pytest

from lakeproof.errors import UsageError
from lakeproof.install.proxies import java_options


def test_the_address_of_a_proxy_is_for_the_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://user:secret@proxy:3128")
    assert java_options()[:2] == ["-Dhttps.proxyHost=proxy", "-Dhttps.proxyPort=3128"]


@pytest.mark.parametrize("text", ["http://user:secret@proxy:eighty", "http://[::1:3128", "proxy:99999"])
def test_a_wrong_address_is_told_without_its_password(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", text)
    with pytest.raises(UsageError, match="https_proxy is not the address of a proxy") as refused:
        java_options()
    assert "secret" not in str(refused.value)
