"""The real Ivy retrieves jars from a folder in place of Maven Central, and they are checked."""

import fcntl
import hashlib
import os
import pwd
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakeproof.doctor import find_java
from lakeproof.errors import UnavailableError, UsageError
from lakeproof.install import jars as module
from lakeproof.install.jars import JarsError, hashes_of_spark, read_hashes, retrieve

IVY = """<ivy-module version="2.0">
  <info organisation="here" module="here"/>
  <configurations><conf name="spark"/></configurations>
  <dependencies>{}</dependencies>
</ivy-module>"""
SETTINGS = """<ivysettings>
  <caches defaultCacheDir="{0}/ivy-cache"/>
  <settings defaultResolver="here"/>
  <resolvers>
    <filesystem name="here" checksums="sha1"><artifact pattern="{0}/central/[artifact]-[revision].[ext]"/></filesystem>
  </resolvers>
</ivysettings>"""


@pytest.fixture
def central(tmp_path, monkeypatch):
    """A folder of jars as the only source for Ivy; `call` retrieves jars into a folder."""
    (tmp_path / "central").mkdir()
    ivy, settings, listed = (tmp_path / name for name in ("ivy.xml", "ivysettings.xml", "jars.sha256"))
    settings.write_text(SETTINGS.format(tmp_path))
    monkeypatch.setattr(module, "_packaged", lambda name: tmp_path / name)

    def offer(**jars: bytes) -> None:
        asked = []
        for name, content in jars.items():
            (tmp_path / "central" / f"{name}-1.jar").write_bytes(content)
            asked.append(f'<dependency org="here" name="{name}" rev="1" conf="spark->default" transitive="false"/>')
        ivy.write_text(IVY.format("".join(asked)))
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in jars.items()}
        listed.write_text("".join(f"{digest}  ./{name}-1.jar\n" for name, digest in digests.items()))

    def call(folder: Path, **options: bool) -> bool:
        return retrieve(str(find_java()[0]), "spark", folder, listed, settings, **options)

    call.offer, call.listed, call.source = offer, listed, tmp_path / "central"
    return call


@pytest.mark.all
def test_jars_are_retrieved_once_and_replaced_when_the_list_changes(central, tmp_path):
    folder = tmp_path / "a folder" / "jars"
    central.offer(one=b"1", two=b"2")
    assert central(folder)
    assert {jar.name: jar.read_bytes() for jar in folder.glob("*.jar")} == {"one-1.jar": b"1", "two-1.jar": b"2"}
    assert not central(folder)
    (folder / "two-1.jar").write_bytes(b"damaged")
    assert central(folder)
    assert (folder / "two-1.jar").read_bytes() == b"2"
    central.offer(one=b"1", three=b"3")
    assert central(folder)
    assert {jar.name for jar in folder.glob("*.jar")} == {"one-1.jar", "three-1.jar"}
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == ["jars"]


def test_jars_of_somebody_else_are_left_alone(central, tmp_path):
    central.offer(one=b"1")
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "theirs.jar").write_bytes(b"theirs")
    with pytest.raises(UsageError, match=r"contains theirs\.jar"):
        central(folder)
    assert [path.name for path in folder.iterdir()] == ["theirs.jar"]


@pytest.mark.all
def test_a_jar_that_is_not_the_recorded_one_is_not_installed(central, tmp_path):
    central.offer(one=b"1", two=b"2")
    (central.source / "one-1.jar").write_bytes(b"another")
    with pytest.raises(JarsError, match=r"The hash of one-1\.jar differs from jars\.sha256"):
        central(tmp_path / "jars")
    central.listed.write_text(re.sub(r".*two.*\n", "", central.listed.read_text()))
    with pytest.raises(JarsError, match=r"two-1\.jar is not in it"):
        central(tmp_path / "jars")
    assert list((tmp_path / "jars").iterdir()) == []


@pytest.mark.all
def test_a_jar_that_cannot_be_had_is_named(central, tmp_path):
    central.offer(one=b"1")
    (central.source / "one-1.jar").unlink()
    with pytest.raises(UnavailableError, match=r"Cannot retrieve the jars: .*one") as caught:
        central(tmp_path / "jars")
    assert "\n" not in caught.value.message
    assert "one" in (tmp_path / "ivy.log").read_text()


@pytest.mark.long
def test_set_ups_at_once_share_a_cache(central, tmp_path):
    central.offer(**{f"jar{number}": bytes([number]) * 1_000_000 for number in range(10)})
    folders = [tmp_path / str(number) / "jars" for number in range(3)]
    with ThreadPoolExecutor(len(folders)) as pool:
        assert all(pool.map(central, folders))
    assert [len(list(folder.glob("*.jar"))) for folder in folders] == [10] * len(folders)


@pytest.mark.all
def test_a_set_up_waits_for_another_one(central, tmp_path, capfd):
    central.offer(one=b"1")
    lock = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ivy2" / "lakeproof.lock"
    lock.parent.mkdir(exist_ok=True)
    with ThreadPoolExecutor(1) as pool, lock.open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        done = pool.submit(central, tmp_path / "jars")
        said = ""
        deadline = time.monotonic() + 120
        while "Waiting for another set-up" not in said and not done.done() and time.monotonic() < deadline:
            said += capfd.readouterr().err
            time.sleep(0.05)
        assert "Waiting for another set-up" in said
        assert not list((tmp_path / "jars").glob("*.jar"))
        fcntl.flock(other, fcntl.LOCK_UN)
        assert done.result()


@pytest.mark.all
def test_a_damaged_download_is_not_blamed_on_the_network(central, tmp_path):
    central.offer(one=b"1")
    (central.source / "one-1.jar.sha1").write_text("0" * 40)
    with pytest.raises(UnavailableError, match=r"a download or Ivy's cache is damaged: .*invalid sha1") as caught:
        central(tmp_path / "jars")
    assert "network" not in caught.value.hint
    assert ".ivy2/cache" in caught.value.hint


@pytest.mark.all
def test_hashes_are_recorded(central, tmp_path):
    central.offer(one=b"1")
    recorded = central.listed.read_text()
    central.listed.write_text("")
    assert central(tmp_path / "jars", lock=True)
    assert central.listed.read_text() == recorded
    assert read_hashes(central.listed) == {"one-1.jar": hashlib.sha256(b"1").hexdigest()}


def java_through(monkeypatch, tmp_path, **variables: str) -> tuple[list[str], str]:
    """Return the options that Ivy's JVM gets with proxies in the environment, and the hint if it fails."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    commands = []

    def fail(command, **_):
        commands.append(command)
        return subprocess.CompletedProcess(command, 1)

    with monkeypatch.context() as instead:
        instead.setattr(subprocess, "run", fail)
        with pytest.raises(UnavailableError) as failed:
            retrieve("java", "spark", tmp_path / "jars", hashes_of_spark())
    (command,) = commands
    assert command[0] == "java"
    return [word for word in command if word.startswith("-D")], failed.value.hint


def test_ivy_uses_the_proxies_of_the_environment(monkeypatch, tmp_path):
    same = ["-Dhttp.proxyHost=proxy", "-Dhttp.proxyPort=3128", "-Dhttps.proxyHost=proxy", "-Dhttps.proxyPort=3128"]
    assert java_through(monkeypatch, tmp_path)[0] == []
    assert java_through(monkeypatch, tmp_path, all_proxy="proxy:3128")[0] == same
    assert java_through(monkeypatch, tmp_path, all_proxy="socks5://proxy:3128")[0] == []
    assert java_through(monkeypatch, tmp_path, HTTPS_PROXY="http://proxy")[0] == [
        *("-Dhttps.proxyHost=proxy", "-Dhttps.proxyPort=80")
    ]
    both = {"http_proxy": "http://proxy:3128/", "https_proxy": "http://proxy:3128"}
    assert java_through(monkeypatch, tmp_path, no_proxy="localhost, .example.com", **both)[0] == [
        *same,
        "-Dhttp.nonProxyHosts=localhost|*.localhost|example.com|*.example.com",
    ]
    assert java_through(monkeypatch, tmp_path, no_proxy="*", **both)[0] == []
    own = {"JAVA_TOOL_OPTIONS": "-Dhttps.proxyHost=other"}
    assert java_through(monkeypatch, tmp_path, **both, **own)[0] == []


def test_the_login_of_a_proxy_is_not_on_a_command_line(monkeypatch, tmp_path):
    options, hint = java_through(monkeypatch, tmp_path, https_proxy="http://me:hush@proxy:3128")
    assert options == ["-Dhttps.proxyHost=proxy", "-Dhttps.proxyPort=3128"]
    assert "hush" not in hint
    assert "login of the proxy" in hint
    assert "login" not in java_through(monkeypatch, tmp_path, https_proxy="http://proxy:3128")[1]
