"""Run DuckDB's shell with the tables of the lake."""

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from lakeproof.catalog import quoted
from lakeproof.errors import UnavailableError
from lakeproof.settings import Settings
from reader.connect import session_statements
from reader.rest_facade import serve_catalog

_PROMPT = ".prompt 'lake D ' '     > '"
_GREETING = ".print 'FROM tables; lists the tables of the lake. Ctrl-D leaves.'\n"
_AFTER_ERROR = 1  # the exit code of DuckDB's shell if its last statement failed


def run_shell(settings: Settings) -> int:
    """Run the shell on the standard streams; return its exit code."""
    binary = _binary()
    with serve_catalog(settings, []) as endpoint, TemporaryDirectory(prefix="reader-") as folder:
        # A file that only its owner can read, not an argument: it contains the S3 key, and ps shows arguments.
        script = Path(folder) / "init.sql"
        script.touch(0o600)
        statements = "".join(f"{statement};\n" for statement in session_statements(settings, endpoint))
        # `.mode trash` hides the result of CREATE SECRET. `.output FILE` would, too, but then the shell no longer knows
        # that it writes to a terminal, and its tables ignore the width of the screen.
        is_terminal = sys.stdin.isatty()
        greeting = _GREETING if is_terminal else ""
        script.write_text(f".mode trash\n{statements}.mode duckbox\n{_PROMPT}\n{greeting}")
        shell = subprocess.Popen([binary, "-unsigned", "-cmd", f".read {quoted(script)}"])
        # Ctrl-C is for the shell, where it cancels a query. Other signals to this process end the shell.
        signal.signal(signal.SIGINT, lambda *_: None)
        for ending in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(ending, lambda *_: shell.terminate())
        code = shell.wait()
        if is_terminal and code == _AFTER_ERROR:
            return 0  # the user saw the error of the last statement, and left
        return code if code >= 0 else 128 - code


def _binary() -> str:
    spec = find_spec("duckdb_cli")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "duckdb"
        if os.access(path, os.X_OK):
            return str(path)
    raise UnavailableError(
        "The DuckDB shell is not installed.", 'Install it: pip install "lakeproof[reader]", or `make setup` in a clone.'
    )
