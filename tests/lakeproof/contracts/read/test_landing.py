"""The place in a contract where files land, and the selection of files."""

import pytest
import yaml
from tests.pages import blocks

from lakeproof.contracts import Contract, parse_contract
from lakeproof.contracts.diff import Compatibility, changes, compatibility
from lakeproof.contracts.model import DEFAULT_LANDING, Landing
from lakeproof.errors import UsageError
from lakeproof.history.applied import Applied

CONTRACT = """\
apiVersion: v3.2.0
kind: DataContract
version: 1.0.0
{servers}customProperties:
  - {{property: eventTime, value: at}}
{landing}schema:
  - name: things
    properties:
      - {{name: at, logicalType: timestamp}}
"""


def parse(server: str = "", landing: str = "") -> Contract:
    servers = f"servers:\n  - {{server: production, type: snowflake, database: x}}\n  - {server}\n" if server else ""
    line = f"  - {{property: landing, value: {landing}}}\n" if landing else ""
    return parse_contract(CONTRACT.format(servers=servers, landing=line).encode(), "things.yaml")


def test_what_a_contract_says() -> None:
    assert parse().landing == DEFAULT_LANDING
    found = parse(
        "{server: landing, type: s3, location: 's3://acme/raw/', endpointUrl: 'http://store:9000'}",
        "{include: ['**/*.json', '*.gz'], exclude: tmp/**}",
    )
    include = ("**/*.json", "*.gz")
    assert found.landing == Landing("s3://acme/raw/", "http://store:9000", include, ("tmp/**",))
    assert parse("{server: landing, type: local, path: /data/in}").landing == Landing("/data/in")
    assert parse("{server: elsewhere, type: s3, location: 'ftp://x'}").landing == DEFAULT_LANDING


@pytest.mark.parametrize(
    ("server", "landing", "says"),
    [
        ("{server: landing, type: kafka, location: 's3://a'}", "", "unknown type 'kafka' of the server landing."),
        ("{server: landing, type: s3}", "", "the server landing has no location."),
        ("{server: landing, type: s3, location: 'gs://a/b'}", "", "gs://a/b is not a file:// or s3:// address."),
        ("{server: landing, type: local, location: 's3://a'}", "", "s3://a is not of the type local."),
        ("{server: landing, type: s3, location: /a}\n  - {server: landing}", "", "duplicate server 'landing'."),
        (
            "{server: landing, type: s3, location: 's3://a', endpointUrl: 'minio:9000'}",
            "",
            "'minio:9000' is not the address of a server.",
        ),
        (
            "{server: landing, type: s3, location: 's3://a/{model}/*.json'}",
            "",
            "without a glob, got 's3://a/{model}/*.json'.",
        ),
        ("{server: landing, type: local, path: ./in/*.json}", "", "without a glob, got './in/*.json'."),
        ("", "'*.json'", "landing: expected the keys include or exclude, got '*.json'."),
        ("", "{includes: ['*.json']}", "landing: unknown key 'includes'."),
        ("", "{include: [/a/*.json]}", "expected a glob of names below the landing zone, got '/a/*.json'."),
        ("", "{exclude: [1]}", "expected a glob of names below the landing zone, got 1."),
        ("", "{exclude: ['a//b']}", "got 'a//b'."),
    ],
)
def test_what_it_cannot_say(server: str, landing: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(server, landing)
    assert says in str(refused.value)


def test_a_contract_that_was_recorded_stays_readable() -> None:
    server = "{server: landing, type: s3, location: 's3://a/*', endpointUrl: 'minio:9000'}"
    text = CONTRACT.format(servers=f"servers: [{server}]\n", landing="").encode()
    with pytest.raises(UsageError):
        parse_contract(text, "things.yaml")
    assert Applied(1, "1.0.0", "digest", text).contract().landing == Landing("s3://a/*", "minio:9000")


def test_what_the_page_shows() -> None:
    server, globs = map(yaml.safe_load, blocks("docs/existing-bucket.md", "yaml"))
    found = parse(str(server["servers"][0]), str(globs["customProperties"][0]["value"])).landing
    assert (found.location, found.endpoint_url) == ("s3://acme-raw/exports", "https://s3.eu-central-1.amazonaws.com")
    assert (found.include, found.exclude) == (("dt=*/**", "*.json.gz"), ("**/tmp/**", "*.csv"))


def test_a_change_changes_no_record() -> None:
    found = tuple(changes(parse(), parse("{server: landing, type: local, path: /in}", "{exclude: ['*.bak']}")))
    assert [change.what for change in found] == ["landed files all → all but *.bak in /in: records as before"]
    assert compatibility(found) is Compatibility.FULL
