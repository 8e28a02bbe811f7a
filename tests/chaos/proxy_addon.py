"""Addon of mitmproxy that applies the rule in the file that ``CHAOS_RULE`` names to requests. See proxy.py.

The addon runs in mitmproxy's own environment, and imports nothing of the project.
"""

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

from mitmproxy import ctx
from mitmproxy.http import HTTPFlow, Response

_RULE = Path(os.environ["CHAOS_RULE"])
_HITS = Path(os.environ["CHAOS_HITS"])


class Faults:
    """Disturbs requests that match the rule."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    async def request(self, flow: HTTPFlow) -> None:
        """Called with a complete request, before it is passed on."""
        await self._disturb(flow, "request")

    async def response(self, flow: HTTPFlow) -> None:
        """Called with a complete response, before the client gets it."""
        await self._disturb(flow, "response")

    async def _disturb(self, flow: HTTPFlow, phase: str) -> None:
        rule, request = self._rule(), f"{flow.request.method} {flow.request.path}"
        if not rule or rule["phase"] != phase or not re.search(rule["request"], request):
            return
        number = rule["number"]
        self._seen[number] = self._seen.get(number, 0) + 1
        if self._seen[number] % rule["every"] or (rule["once"] and self._seen[number] > rule["every"]):
            return
        with _HITS.open("a") as hits:
            hits.write(f"{number} {request}\n")
        match rule["act"]:
            case "delay":
                await asyncio.sleep(rule["seconds"])
            case "refuse":
                flow.response = Response.make(503, b"<Error><Code>SlowDown</Code></Error>", {"Retry-After": "0"})
            case "reset":
                flow.kill()
            case "hold":
                while (now := self._rule()) and now["number"] == number:
                    await asyncio.sleep(0.01)
                if rule["drop"]:
                    flow.kill()
                elif phase == "request" and not flow.client_conn.connected:
                    # The client has died meanwhile, so mitmproxy would forget the request, which was on its way.
                    ctx.master.commands.call("replay.client", [flow.copy()])

    @staticmethod
    def _rule() -> dict[str, Any] | None:
        try:
            rule: dict[str, Any] = json.loads(_RULE.read_bytes())
        except FileNotFoundError:
            return None
        return rule


addons = [Faults()]
