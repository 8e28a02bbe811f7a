"""The proxies of the environment, for the JVM of Ivy."""

import os
import urllib.request
from urllib.parse import SplitResult, urlsplit

from lakeproof.errors import UsageError

_PORTS = {"http": 80, "https": 443}
_OF_JAVA = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


def java_options() -> list[str]:
    """Return options by which a JVM uses the proxies of the environment, without logins, which `ps` would show."""
    direct = urllib.request.getproxies().get("no", "")
    if direct.strip() == "*" or any("proxyHost" in os.environ.get(name, "") for name in _OF_JAVA):
        return []
    options = []
    for scheme, proxy in _proxies().items():
        options += [
            f"-D{scheme}.proxyHost={proxy.hostname}",
            f"-D{scheme}.proxyPort={proxy.port or _PORTS[proxy.scheme]}",
        ]
    hosts = [name for host in direct.split(",") if (name := host.strip().lstrip("*."))]
    if options and hosts:
        options.append("-Dhttp.nonProxyHosts=" + "|".join(f"{host}|*.{host}" for host in hosts))  # for https, too
    return options


def needs_login() -> bool:
    """Whether a proxy of the environment has a login."""
    return any(proxy.username for proxy in _proxies().values())


def _proxies() -> dict[str, SplitResult]:
    """Return the proxies of the environment for HTTP and HTTPS; those of other kinds are left out."""
    known = urllib.request.getproxies()
    given = {scheme: known.get(scheme) or known.get("all", "") for scheme in _PORTS}
    found = {scheme: _address(scheme, each) for scheme, each in given.items()}
    return {scheme: proxy for scheme, proxy in found.items() if proxy.scheme in _PORTS and proxy.hostname}


def _address(scheme: str, text: str) -> SplitResult:
    try:
        found = urlsplit(text if "://" in text else f"http://{text}")
        found.port  # noqa: B018 - read here, since urlsplit does not check it
    except ValueError:  # without the text, which may have a password
        raise UsageError(f"{scheme}_proxy is not the address of a proxy.", "Write http://HOST:PORT.") from None
    return found
