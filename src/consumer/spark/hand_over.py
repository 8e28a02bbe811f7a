"""Passes the streams of the daemon that Spark's JVM starts to the process that has imported the modules of tasks.

``worker.sh`` runs it with the standard library alone, so that it starts at once: see ``worker_daemon.py``.
"""

import json
import os
import socket
import sys


def hand_over(path: str) -> bool:
    """Pass streams and environment on, and wait until the other process ends; return whether there was one."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
            message = json.dumps(dict(os.environ)).encode() + b"\n"
            sent = socket.send_fds(connection, [message], [0, 1, 2])
            connection.sendall(message[sent:])
            if not connection.recv(1):
                return False
        except OSError:
            return False
        os.close(1)  # the JVM reads it until all its writers have ended
        connection.recv(1)
    return True


if __name__ == "__main__":
    sys.exit(0 if hand_over(sys.argv[1]) else 1)
