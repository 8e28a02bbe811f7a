"""The package for executors."""

import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

from lakeproof.errors import UsageError
from lakeproof.install.pack import _required, _requirements, pack


def test_lakeproof_alone_is_small_and_can_be_imported_without_what_was_installed(tmp_path: Path) -> None:
    size = pack(tmp_path / "new" / "ours.tar.gz", only_ours=True)
    assert size < 2_000_000
    with tarfile.open(tmp_path / "new" / "ours.tar.gz") as archive:
        names = archive.getnames()
        archive.extractall(tmp_path / "unpacked")
    assert not [name for name in names if name.endswith((".pyc", ".pth")) or "__pycache__" in name]
    assert {name.partition("/")[0] for name in names if "dist-info" not in name} == {"lakeproof", "consumer"}
    program = "import importlib.metadata as m, lakeproof; print(lakeproof.__file__, m.version('lakeproof'))"
    told = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(tmp_path / "unpacked")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert told == [f"{tmp_path}/unpacked/lakeproof/__init__.py", version("lakeproof")]


def test_what_tasks_import_is_packed_and_nothing_else() -> None:
    packed = {each.name.lower() for each in _required()}
    assert {"lakeproof", "pyarrow", "pyiceberg", "pyspark", "boto3", "confluent-kafka", "sqlalchemy"} <= packed
    assert not {"duckdb", "faker", "pytest", "fastapi", "matplotlib"} & packed


def test_requirements_of_extras_count_only_where_they_are_asked_for() -> None:
    lines = ["a>=1", "B_c[x, y]", "d; extra == 'consumer'", 'e; python_version > "3" and extra == "reader"']
    assert list(_requirements(lines, "consumer")) == [("a", ""), ("b-c", ""), ("b-c", "x"), ("b-c", "y"), ("d", "")]
    assert ("d", "") not in list(_requirements(lines, ""))


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="Cannot write"):
        pack(tmp_path / "file" / "a.tar.gz", only_ours=True)


def test_a_package_that_is_not_whole_replaces_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running driver may serve the archive, and the next one would send half of it."""
    target = tmp_path / "a.tar.gz"
    target.write_bytes(b"before")

    def fail(*_: object, **__: object) -> None:
        assert target.read_bytes() == b"before"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "add", fail)
    with pytest.raises(UsageError, match="No space left"):
        pack(target, only_ours=True)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]
    assert target.read_bytes() == b"before"


def test_files_are_packed_not_links_to_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installers may link files of an environment to a cache, which executors lack."""
    package = tmp_path / "package"
    package.mkdir()
    (tmp_path / "cached.py").write_text("pass")
    (package / "module.py").symlink_to(tmp_path / "cached.py")
    monkeypatch.setattr("lakeproof.install.pack.files", lambda _: package)
    pack(tmp_path / "a.tar.gz", only_ours=True)
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        assert archive.getmember("consumer/module.py").isreg()
