"""On a real MinIO: the same bytes, never overwritten, with clear errors if something is missing."""

import json
from pathlib import Path
from typing import Any

import pytest

from lakeproof.errors import UnavailableError, UsageError
from lakeproof.landing.zone import zone_at
from lakeproof.storage import open_storage

pytestmark = pytest.mark.s3

ARGUMENTS = ["--seed", 5, "--start", "2026-01-31T23:59:00Z", "--batches", 5, "--corruption-chance", 0.3]


@pytest.fixture(autouse=True)
def _credentials(minio: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in minio.environment().items():
        monkeypatch.setenv(name, value)


def landed(root: str, s3: Any) -> dict[str, bytes]:
    storage = open_storage(root, s3)
    return {file.uri.removeprefix(f"{root}/"): storage.read(file.uri) for file in storage.list()}


def test_s3_and_local_hold_the_same(produce: Any, bucket: str, s3_settings: Any, tmp_path: Path) -> None:
    root = f"s3://{bucket}/landing"
    assert produce(*ARGUMENTS, "--data-sink", "s3", "--target", root).exit_code == 0
    assert produce(*ARGUMENTS, "--data-sink", "local", "--target", tmp_path / "landing").exit_code == 0
    local = {
        str(path.relative_to(tmp_path / "landing")): path.read_bytes()
        for path in (tmp_path / "landing").rglob("*.json")
    }
    assert landed(root, s3_settings) == local
    assert len(local) == 5


def test_batches_land_where_the_consumer_reads(produce: Any, bucket: str, s3_settings: Any) -> None:
    root = f"s3://{bucket}//raw//landing/"
    assert produce(*ARGUMENTS, "--data-sink", "s3", "--target", root).exit_code == 0
    assert len(landed(f"s3://{bucket}/raw/landing", s3_settings)) == 5
    assert len(landed(zone_at(root, s3_settings).root, s3_settings)) == 5


def test_the_landing_zone_may_be_a_bucket(
    produce: Any, bucket: str, s3_settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_LANDING", f"s3://{bucket}")
    assert produce(*ARGUMENTS).exit_code == 0
    assert len(landed(f"s3://{bucket}/events", s3_settings)) == 5


def test_an_existing_object_is_refused(produce: Any, bucket: str, s3_settings: Any, tmp_path: Path) -> None:
    root = f"s3://{bucket}/landing"
    assert produce(*ARGUMENTS, "--target", root).exit_code == 0
    before = landed(root, s3_settings)
    again = produce(*ARGUMENTS, "--seed", 6, "--target", root, "--report", tmp_path / "report.json")
    assert isinstance(again.exception, UsageError)
    assert min(before) in again.exception.message
    assert landed(root, s3_settings) == before
    assert json.loads((tmp_path / "report.json").read_bytes())["batches"] == 0


def test_a_missing_bucket_a_wrong_key_and_none_are_said_plainly(
    produce: Any, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = produce(*ARGUMENTS, "--target", f"s3://{bucket}-none/landing")
    assert isinstance(result.exception, UnavailableError)
    assert "Create the bucket" in result.exception.hint
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    result = produce(*ARGUMENTS, "--target", f"s3://{bucket}/landing")
    assert isinstance(result.exception, UnavailableError)
    assert "Check AWS_SECRET_ACCESS_KEY" in result.exception.hint
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    result = produce(*ARGUMENTS, "--target", f"s3://{bucket}/landing")
    assert isinstance(result.exception, UnavailableError)
    assert "Set AWS_ACCESS_KEY_ID" in result.exception.hint
