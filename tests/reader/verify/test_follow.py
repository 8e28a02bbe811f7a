"""``reader verify --follow``, in this process."""

import signal
from contextlib import suppress

import pytest

from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings
from reader.verify.follow import follow
from reader.verify.report import ReportFormat


@pytest.mark.parametrize("replaced", [LakeproofError("INTERRUPT Error: Interrupted!"), ImportError("duckdb")])
def test_an_error_that_replaces_the_exception_of_a_signal_ends_silently(
    replaced: Exception, lake_settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def verify(*_: object, **__: object) -> None:
        with suppress(BaseException):
            signal.raise_signal(signal.SIGTERM)
        raise replaced

    monkeypatch.setattr("reader.verify.follow.verify", verify)
    assert follow(lake_settings, "events", 1, ReportFormat.TABLE) == 0
    assert capsys.readouterr() == ("", "")


def test_an_error_without_a_signal_ends_the_first_proof(
    lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verify(*_: object, **__: object) -> None:
        raise ImportError

    monkeypatch.setattr("reader.verify.follow.verify", verify)
    with pytest.raises(ImportError):
        follow(lake_settings, "events", 1, ReportFormat.TABLE)
