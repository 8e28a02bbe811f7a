"""The processes of the demo, under supervisord."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import NoReturn, Self

from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings
from lakeproof.wording import first_line

_LINK = ".demo"  # link in the lake's folder to the folder of the socket: the lake's path may be too long for a socket
_PAGE = "page"  # file with the port of the page, beside the socket, written by the server of the page
_WHAT = "what"  # file with what was started, such as "events from files"
_STARTER = "starter"  # file with the id of the process that starts the programs, until all have started
_PID = "supervisord.pid"  # file with the id of supervisord, which removes it at its end
_LINES = 4  # lines of a log that an error shows
_POLL_SECONDS = 0.2


class Processes:
    """The programs of a running demo; `folder` has the socket that controls them."""

    def __init__(self, settings: Settings, folder: Path, variables: dict[str, str]) -> None:
        self._settings, self._folder, self._variables = settings, folder, variables

    @classmethod
    def running(cls, settings: Settings) -> Self | None:
        """Return the processes of the lake of `settings`; None if none are running."""
        try:
            folder = (settings.home / _LINK).readlink()
        except OSError:
            return None
        names = ("PRODUCER", "CONSUMER", "BROKER", "JARS")
        found = cls(settings, folder, dict.fromkeys(names, "") | {"KAFKA": "false"})
        return found if found._control("pid").returncode == 0 or found.is_stopping else None

    @classmethod
    def start(cls, settings: Settings, what: str, variables: dict[str, str]) -> Self:
        """Start supervisord, with a broker if `variables` say so, but no other program yet."""
        settings.logs.mkdir(parents=True, exist_ok=True)
        settings.home.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="lakeproof."))
        (folder / _WHAT).write_text(what)
        (folder / _STARTER).write_text(str(os.getpid()))
        (folder / "logs").symlink_to(settings.logs.absolute())
        link = settings.home / _LINK
        link.unlink(missing_ok=True)
        link.symlink_to(folder)
        started = cls(settings, folder, variables)
        done = started._run("supervisord")
        if done.returncode:
            raise LakeproofError(
                f"Cannot start supervisord: {first_line(done.stdout + done.stderr)}.", "See its message."
            )
        return started

    @property
    def page(self) -> str | None:
        """Address of the page of the lake; None until its server listens."""
        port = _read(self._folder / _PAGE)
        return f"http://127.0.0.1:{port}/" if port else None

    @property
    def what(self) -> str:
        """What was started, such as "events from files"."""
        return _read(self._folder / _WHAT)

    @property
    def cut_off(self) -> bool:
        """Whether the process that started the programs ended before all had started."""
        starter = _read(self._folder / _STARTER)
        return bool(starter) and not _runs(int(starter))

    @property
    def is_stopping(self) -> bool:
        """Whether another command is stopping it."""
        return "SHUTDOWN_STATE" in self._control("pid").stdout

    def complete(self) -> None:
        """Record that all programs have started."""
        (self._folder / _STARTER).unlink()

    def status(self) -> str:
        """Return the status of the started programs, one line each."""
        lines = self._control("status").stdout.splitlines(keepends=True)
        return "".join(line for line in lines if "Not started" not in line)

    def launch(self, *programs: str) -> None:
        """Start programs at once, and wait until each has run for a few seconds, or raise LakeproofError."""
        waiting = {program: self._popen("start", program) for program in programs}
        if failed := [program for program, process in waiting.items() if process.wait()]:
            self.fail(failed[0])

    def launched(self, program: str) -> bool:
        """Start a program unless it runs; return whether it runs."""
        return not self._control("status", program).returncode or not self._control("start", program).returncode

    def fail(self, program: str) -> NoReturn:
        """Show the status and the end of a log, and raise LakeproofError."""
        sys.stderr.write(self.status())
        log = self._settings.logs / f"{program}.log"
        if log.exists():
            sys.stderr.writelines(log.read_text(errors="replace").splitlines(keepends=True)[-_LINES:])
        raise LakeproofError("The demo did not start.", f"See the lines above, of {log}.")

    def stop(self) -> None:
        """Stop everything, and wait for the end, also if another command stops it."""
        self._control("shutdown")  # once it has been answered, the file exists until the end
        pid = _read(self._folder / _PID)
        while pid and _runs(int(pid)):
            time.sleep(_POLL_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)
        link = self._settings.home / _LINK
        with suppress(OSError):
            if link.readlink() == self._folder:  # not of a demo that was started meanwhile
                link.unlink()

    def _control(self, *command: str) -> subprocess.CompletedProcess[str]:
        return self._run("supervisorctl", *command)

    def _run(self, module: str, *command: str) -> subprocess.CompletedProcess[str]:
        words, variables = self._command(module, *command)
        return subprocess.run(words, env=variables, capture_output=True, text=True, check=False)

    def _popen(self, *command: str) -> "subprocess.Popen[bytes]":
        words, variables = self._command("supervisorctl", *command)
        return subprocess.Popen(words, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _command(self, module: str, *command: str) -> tuple[list[str], dict[str, str]]:
        configuration = str(files("lakeproof.demo") / "supervisord.conf")
        own = {
            "PYTHON": sys.executable,
            "FOLDER": str(Path.cwd()),
            "RUN": str(self._folder),
            "HOME": str(self._settings.home.absolute()),
        }
        named = {f"DEMO_{name}": value for name, value in (own | self._variables).items()}
        words = [sys.executable, "-m", f"supervisor.{module}", "-c", configuration, *command]
        metrics = self._settings.monitor.metrics or "127.0.0.1:0"
        return words, os.environ | named | {"LAKE_METRICS": metrics}


def _read(file: Path) -> str:
    """Return the content of a file; empty if it does not exist."""
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):  # or the id is now one of another user
        return False
    return True
