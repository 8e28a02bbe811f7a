"""Proxies that the environment names."""

import os

_EXCEPT = ("no_proxy", "NO_PROXY")
_OWN = ("127.0.0.1", "localhost")


def reach_this_machine_directly() -> None:
    """Keep requests to this machine, also of child processes, from a proxy of the environment."""
    # Without a proxy, nothing is changed: on macOS, urllib ignores the system's proxies if no_proxy is set.
    if not any(name.lower().endswith("_proxy") and value for name, value in os.environ.items()):
        return
    known = [os.environ.get(name, "").strip() for name in _EXCEPT]
    hosts = dict.fromkeys([host.strip() for value in known for host in value.split(",")] + list(_OWN))
    direct = "*" if "*" in known else ",".join(filter(None, hosts))  # "*" counts only alone
    for name in _EXCEPT:
        if os.environ.get(name) != direct:  # other threads may be reading it
            os.environ[name] = direct
