"""Run a program in a fork of the process that listens at an address: see programs.py. Imports little."""

import array
import json
import os
import signal
import socket
import sys


def _main() -> None:
    opened = [number for number in (0, 1, 2) if _is_open(number)]
    kept = [os.open(os.devnull, os.O_RDWR) for _ in range(3 - len(opened))]  # so that the socket is none of the three
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    request = {
        "name": sys.argv[2],
        "arguments": sys.argv[3:],
        "folder": os.getcwd(),  # noqa: PTH109 - pathlib takes long to import
        "environment": dict(os.environ),
        "open": opened,
    }
    descriptors = array.array("i", opened)
    data = json.dumps(request).encode() + b"\n"
    sent = connection.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)] if opened else [])
    connection.sendall(data[sent:])
    for number in (*opened, *kept):
        os.close(number)  # a pipe ends when the program ends
    code = int(connection.makefile().readline())
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


_main()
