"""The page over HTTP: access control, links, and updates after commits."""

import os
import signal
import socket
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.lakes import changed
from tests.reader.lake import Append
from tests.reader.page.lake import Day, Text, clock, event
from tests.servers import free_port
from typer.testing import CliRunner, Result

from lakeproof.errors import UnavailableError, UsageError
from lakeproof.settings import Settings, settings_of
from reader.cli import app
from reader.page import server
from reader.page.server import run_page, serving

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    home = tmp_path_factory.mktemp("served") / "lake"
    made = settings_of({"LAKE_HOME": home, "LAKE_CONTRACTS": ROOT / "contracts", "LAKE_GOLD": ROOT / "gold"})
    Day(made).hour(9, event("one", clock(9)), event("two", clock(9), event_type="<b>\u202e"))
    return made


@pytest.fixture(scope="module")
def address(settings: Settings) -> Iterator[str]:
    with serving(settings, [], "127.0.0.1", 0) as found:
        yield found


def get(address: str, path: str = "", **headers: str) -> tuple[int, str, HTTPResponse]:
    request = urllib.request.Request(address + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read().decode(), answer
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error  # type: ignore[return-value]


@pytest.mark.all
def test_the_page_is_served_on_ipv6(settings: Settings) -> None:
    with serving(settings, [], "::1", 0) as found:
        assert found.startswith("http://[::1]:")
        assert get(found)[0] == 200


def test_numbers_link_to_their_first_rows_and_events_are_followed(address: str) -> None:
    status, page, answer = get(address)
    assert status == 200
    assert answer.headers["Content-Security-Policy"].endswith("frame-ancestors 'none'")
    assert "rows/events/open" in Text(page).links
    letters = Text(get(address, "rows/events/open")[1]).text
    assert r"<b>\u202e" in letters.replace(r"\\u202e", r"\u202e")
    assert "SELECT * FROM dead_letters_text.events WHERE state <> 'closed'" in letters
    outlook = Text(get(address, "outlook/events")[1]).text
    assert "events: 1 row of bronze and 1 open dead letter judged by 1.1.0." in outlook
    assert "Nothing would change sides." in outlook
    way = Text(get(address, "event/events?id=one")[1]).text
    assert "In bronze.events" in way
    assert "kept" in way
    assert "000.json" in way


@pytest.mark.parametrize(
    "path", ["rows/events/nope", "rows/nope/open", "event/nope?id=1", "outlook/nope", "event/events", "a/b/c"]
)
def test_what_is_not_there(address: str, path: str) -> None:
    assert get(address, path)[0] == 404


def test_a_page_of_another_site_that_resolves_to_this_address_is_refused(address: str) -> None:
    for host in ("evil.example", "127.0.0.1", ""):
        assert get(address, Host=host)[0] == 403
    port = address.rstrip("/").rpartition(":")[2]
    assert get(address, Host=f"localhost:{port}")[0] == 200


def test_another_address_wants_the_token(settings: Settings) -> None:
    secured = changed(settings, LAKE_SERVE_TOKEN="a-token-of-enough-length")
    with serving(secured, [], "0.0.0.0", 0) as found:
        base, _, token = found.partition("?")
        assert base.startswith("http://127.0.0.1:")  # all addresses are listened on, but no browser opens 0.0.0.0
        assert token == "token=a-token-of-enough-length"
        assert get(base)[0] == get(base, "?token=wrong")[0] == get(base, "version")[0] == 401
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(f"{base}?{token}", timeout=120) as answer:
            assert answer.url == base  # the redirect removed the token from the address
            assert answer.status == 200
        mine = f"lakeproof_page_{urlsplit(base).port}=a-token-of-enough-length"
        # Cookies of other servers on the host are sent, too, also those that Python cannot parse.
        for cookies in (mine, f'prefs={{"a": 1}}; {mine}', f"{mine};x", f"x; a=b=c;{mine}"):
            assert get(base, Cookie=cookies)[0] == 200
        for cookies in (mine[:-1], f"other_{mine}", mine.replace("=", "1=", 1)):
            assert get(base, Cookie=cookies)[0] == 401


@pytest.mark.all
def test_a_browser_stays_logged_in_at_two_servers_of_one_host(settings: Settings) -> None:
    """Browsers send the cookies of a host to all its ports."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    both = [changed(settings, LAKE_SERVE_TOKEN=f"a-token-of-server-number-{number}") for number in range(2)]
    with serving(both[0], [], "0.0.0.0", 0) as one, serving(both[1], [], "0.0.0.0", 0) as other:
        for address in (one, other, *(each.partition("?")[0] for each in (one, other))):
            with opener.open(address, timeout=120) as answer:
                assert answer.status == 200


def test_it_follows_commits(address: str, settings: Settings, append: Append) -> None:
    before = get(address, "version")[1]
    append(settings, 3)
    assert get(address, "version")[1] != before


def test_a_catalog_that_is_gone_is_a_page_that_says_so(settings: Settings) -> None:
    with serving(settings, [], "127.0.0.1", 0) as address:
        assert get(address)[0] == 200
        catalog = settings.home / "catalog.db"
        catalog.rename(catalog.with_suffix(".away"))
        catalog.mkdir()
        try:
            status, page, _ = get(address)
        finally:
            catalog.rmdir()
            catalog.with_suffix(".away").rename(catalog)
        assert status == 503
        assert "The lake cannot be read" in page
        assert get(address)[0] == 200


def run(settings: Settings, *arguments: object) -> Result:
    variables = {"LAKE_HOME": str(settings.home), "LAKE_CONTRACTS": str(settings.contracts)}
    return CliRunner().invoke(app, ["page", *map(str, arguments)], env=variables)


def test_it_is_written_to_a_file(settings: Settings, tmp_path: Path) -> None:
    done = run(settings, "events", "--out", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"Wrote {tmp_path / 'page.html'}. ")
    assert "landed units" in Text((tmp_path / "page.html").read_text()).text


def test_a_reader_of_the_old_page_sees_no_part_of_the_new_one(lake_settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("old")
    with (tmp_path / "page.html").open() as old:
        assert run(lake_settings, "--out", tmp_path / "page.html").exit_code == 0
        assert old.read() == "old"
    assert "<html" in (tmp_path / "page.html").read_text()


def test_an_empty_lake_says_so(lake_settings: Settings, tmp_path: Path) -> None:
    lake_settings.home.mkdir()
    done = run(lake_settings, "--out", tmp_path / "page.html")
    assert done.output == f"Wrote {tmp_path / 'page.html'}. The lake has no tables yet.\n"


def test_mistakes_have_hints(settings: Settings, tmp_path: Path) -> None:
    for arguments, said in (
        (["nope"], "events"),
        (["--out", tmp_path / "no" / "page.html"], "which does not exist"),
        (["--out", tmp_path], "is a folder"),
    ):
        error = run(settings, *arguments).exception
        assert said in str(error), arguments
        assert getattr(error, "hint", "")
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(UnavailableError, match="--port"),
        serving(settings, [], "127.0.0.1", taken.getsockname()[1]),
    ):
        pass
    with pytest.raises(UnavailableError, match=r"192\.0\.2\.1:8282"), serving(settings, [], "192.0.2.1", None):
        pass
    with pytest.raises(UsageError, match="--port-file"):
        run_page(settings, [], "127.0.0.1", 0, tmp_path / "no" / "port")


def test_clients_that_go_away_leave_no_stack_trace(settings: Settings, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(settings, [], "127.0.0.1", 0) as address:
        port = urlsplit(address).port
        assert port
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset at once
                client.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        with urllib.request.urlopen(address, timeout=120) as answer:  # the others are answered before: one at a time
            assert answer.status == 200
    assert capfd.readouterr().err == ""


def test_pages_of_several_lakes_are_served_beside_each_other(
    settings: Settings, lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_PORT", free_port())
    with serving(settings, [], "127.0.0.1", None) as first, serving(lake_settings, [], "127.0.0.1", None) as second:
        assert first == f"http://127.0.0.1:{server._PORT}/"
        assert second != first


BUSY = """
from lakeproof.settings import load_settings
from reader.connect import connect
from reader.page import server

def collect(settings, streams):
    with connect(settings) as session:
        print("reading", flush=True)
        while True:
            session.fetch("SELECT sum(i) FROM range(300000) AS t(i)")

server.collect = collect
server.run_page(load_settings(), [], "127.0.0.1", 0)
"""


@pytest.mark.all
def test_it_ends_while_a_page_is_read(settings: Settings) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"LAKE_HOME": str(settings.home)},
    ) as process:
        assert process.stdout
        address = process.stdout.readline().split(" is at ")[1].split()[0]
        parts = urlsplit(address)
        with socket.create_connection((str(parts.hostname), parts.port or 0)) as client:
            client.sendall(f"GET / HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
            assert process.stdout.readline() == "reading\n"
            process.send_signal(signal.SIGTERM)
            _, error = process.communicate(timeout=120)
    assert (process.returncode, error) == (0, "")
