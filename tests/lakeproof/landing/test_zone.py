"""A file's name is its path below the landing folder, however the folder is spelled, and names are unique."""

import os
import pickle
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeproof.landing.selection import Ignored, is_hidden
from lakeproof.landing.zone import LandingZone, landing_zone
from lakeproof.settings import S3Settings, settings_of
from lakeproof.storage import StoredFile

S3 = S3Settings()
ZONES = [LandingZone("file:///lake/landing/events", S3), LandingZone("s3://bucket/landing/events", S3)]
# Valid file names on a POSIX disk: any bytes but a slash and zero.
PART = st.binary(min_size=1, max_size=12).filter(lambda raw: not {*b"/\0"} & {*raw} and raw not in (b".", b".."))
NAMES = st.lists(PART, min_size=1, max_size=3).map(b"/".join)


@given(NAMES, NAMES)
def test_local_names_are_one_to_one(one: bytes, other: bytes) -> None:
    zone = ZONES[0]
    uris = [Path(os.fsdecode(b"/lake/landing/events/" + raw)).as_uri() for raw in (one, other)]
    names = [zone.name_of(uri) for uri in uris]
    assert [zone.uri_of(name) for name in names] == uris
    assert (names[0] == names[1]) == (one == other)
    assert all(name.encode() for name in names)  # text that every table can store


@given(st.text(min_size=1, max_size=20).filter(lambda key: not key.startswith("/")), st.sampled_from(ZONES))
def test_a_key_and_a_path_of_the_same_name_are_the_same_source(key: str, zone: LandingZone) -> None:
    try:
        raw = key.encode()
    except UnicodeEncodeError:
        return  # keys have no lone surrogates
    if b"\0" in raw or any(part in ("", ".", "..") for part in key.split("/")):
        return
    uri = f"{zone.root}/{key}" if zone.root.startswith("s3") else Path(f"/lake/landing/events/{key}").as_uri()
    assert zone.name_of(uri) == key.replace("%", "%25")
    assert zone.uri_of(zone.name_of(uri)) == uri


def test_names_stay_readable() -> None:
    assert ZONES[0].name_of("file:///lake/landing/events/dt%3D2026-11-22/a%20b%C3%BC.json") == "dt=2026-11-22/a bü.json"
    assert ZONES[0].name_of("file:///lake/landing/events/%FF%25.json") == "%FF%25.json"
    assert ZONES[0].name_of("file:///elsewhere/x.json") == "/elsewhere/x.json"
    assert ZONES[0].uri_of("/elsewhere/x.json") == "file:///elsewhere/x.json"


@pytest.mark.parametrize("spelling", ["lake/landing", "lake/../lake/landing/", "link/landing", "lake/./landing"])
def test_a_local_zone_is_the_same_however_it_is_spelled(tmp_path: Path, spelling: str) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    settings = settings_of({"LAKE_LANDING": str(tmp_path / spelling)}).model_copy(update={"s3": S3})
    assert landing_zone(settings, "events").root == (tmp_path / "lake" / "landing" / "events").as_uri()


@pytest.mark.parametrize("spelling", ["s3://bucket/a/b", "s3://bucket//a/b/", "s3://bucket/a//b"])
def test_a_prefix_is_the_same_however_many_slashes_it_has(spelling: str) -> None:
    settings = settings_of({"LAKE_LANDING": spelling}).model_copy(update={"s3": S3})
    assert landing_zone(settings, "events").root == "s3://bucket/a/b/events"


def test_a_contract_says_where_files_land_and_a_lake_that_is_not_made_yet_is_not_made(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "contracts" / "events.yaml").read_text()
    server = "servers: [{server: landing, type: s3, location: 's3://acme//raw/'}]\n"
    (tmp_path / "events.yaml").write_text(server + text)
    keys = {"AWS_REGION": "eu-west-1", "LAKE_SOURCE_ACCESS_KEY_ID": "reader", "LAKE_SOURCE_SECRET_ACCESS_KEY": "s"}
    settings = settings_of({"LAKE_HOME": tmp_path / "lake", "LAKE_CONTRACTS": tmp_path, **keys})
    zone = landing_zone(settings, "events")
    assert (zone.root, zone.is_own, zone.selection.of_others) == ("s3://acme/raw", True, True)
    assert (zone.s3.access_key_id, zone.s3.region) == ("reader", "eu-west-1")
    assert not landing_zone(settings, "sensors").is_own
    assert not settings.home.exists()
    # MinIO rejects such keys, but S3 accepts them.
    for key in ("/double.json", "a//b.json", "x/../y.json", "./z.json"):
        assert zone.uri_of(zone.name_of(f"{zone.root}/{key}")) == f"{zone.root}/{key}"


@pytest.mark.parametrize(
    "name",
    [
        "_SUCCESS",
        "/data/_SUCCESS",
        ".a.json.crc",
        "_temporary/0/a.json",
        "a/.hidden/b.json",
        "a.json.tmp",
        "a._COPYING_",
    ],
)
def test_hidden_names(name: str) -> None:
    assert is_hidden(name)


@pytest.mark.parametrize(
    "name", ["/home/u/.data/_work/a.json", "a.json", "a_b.json", "_day=1/a.json", "dt=1/a.b", "tmp", "a.tmp.json"]
)
def test_names_that_are_not_hidden(name: str) -> None:
    assert not is_hidden(name)


@pytest.mark.parametrize("zone", ZONES)
def test_only_local_folders_may_be_linked(zone: LandingZone) -> None:
    """A key of S3 with an empty part has a name like that of a linked folder, but all its parts count."""
    file = StoredFile(f"{zone.root}/any", 2, "tag", datetime(2026, 11, 25, tzinfo=UTC))
    hidden = None if zone.root.startswith("file") else Ignored.HIDDEN
    assert zone.ignores("/_temporary/0/a.json", file) == zone.ignores_name("/_temporary/0/a.json") == hidden
    assert zone.ignores("/day/a.json", file) is None


def test_a_zone_that_was_used_can_be_sent_to_a_worker(tmp_path: Path) -> None:
    zone = LandingZone(tmp_path.as_uri(), S3)
    assert list(zone.list()) == []
    assert pickle.loads(pickle.dumps(zone)) == zone
