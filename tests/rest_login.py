"""A REST catalog that requires a login or signed requests, in front of one that does not."""

import hashlib
import http
import io
import itertools
import json
import re
import time
from base64 import b64decode
from collections import Counter
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from tests.lost_answers import RestProxy

CLIENT, SECRET, SCOPE = "lakeproof", "secret-of-lakeproof", "PRINCIPAL_ROLE:ALL"
TOKEN_PATHS = ("/v1/oauth/tokens", "/realms/lake/token")
"""Paths for token requests: of the catalog itself, and of an identity provider."""
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
"""The kind of a request for a token in exchange for an earlier one."""


class LoginProxy(RestProxy):
    """Issues tokens for the credential, and rejects requests without an unexpired token.

    Parameters
    ----------
    uri
        Address of the catalog.
    seconds
        Validity of a token, as reported to its holder.
    leeway
        Seconds that a token remains accepted after that, as on most servers, since a loaded machine renews it late.
    exchanges
        Whether a token is issued in exchange for an earlier one.

    Attributes
    ----------
    grants : Counter
        Number of granted token requests by kind, and of rejected ones, as ``refused``.
    expired : int
        Number of requests with an expired token.
    """

    def __init__(self, uri: str, seconds: float, leeway: float = 0.0, exchanges: bool = True) -> None:
        self.grants: Counter[str] = Counter()
        self.expired = 0
        self._seconds, self._leeway, self._exchanges = seconds, leeway, exchanges
        self._valid_until: dict[str, float] = {}
        self._numbers = itertools.count(1)
        super().__init__(uri, lambda _: None)

    @property
    def settings(self) -> dict[str, str]:
        """Return the variables of a lake with this catalog."""
        return {
            "LAKE_CATALOG": "rest",
            "LAKE_CATALOG_URI": self.uri,
            "LAKE_CATALOG_CREDENTIAL": f"{CLIENT}:{SECRET}",
            "LAKE_CATALOG_OAUTH2_URI": self.uri + TOKEN_PATHS[1],
            "LAKE_CATALOG_SCOPE": SCOPE,
        }

    def expire(self) -> None:
        """Expire all tokens now."""
        self._valid_until = dict.fromkeys(self._valid_until, 0.0)

    def new_token(self) -> str:
        """Return a token, as issued by an administrator."""
        token = f"token-{next(self._numbers)}-of-the-test"
        self._valid_until[token] = time.monotonic() + self._seconds + self._leeway
        return token

    def _forward(self, request: BaseHTTPRequestHandler) -> None:
        if request.path in TOKEN_PATHS:
            self._grant(request)
            return
        token = (request.headers.get("Authorization") or "").removeprefix("Bearer ")
        if self._valid_until.get(token, 0) >= time.monotonic():
            super()._forward(request)
            return
        self.expired += token in self._valid_until
        request.rfile.read(int(request.headers.get("Content-Length") or 0))
        message = {"message": "Not authorized", "type": "NotAuthorizedException", "code": 401}
        answer_json(request, http.HTTPStatus.UNAUTHORIZED, {"error": message})

    def _grant(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        asked = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        kind, scope = asked.get("grant_type", ""), asked.get("scope")
        # In the body, as Iceberg's clients send it, or in a header, as DuckDB does.
        scheme, _, encoded = (request.headers.get("Authorization") or "").partition(" ")
        basic = b64decode(encoded).decode() if scheme == "Basic" else ""
        is_client = f"{CLIENT}:{SECRET}" in (f"{asked.get('client_id')}:{asked.get('client_secret')}", basic)
        knows_token = self._exchanges and asked.get("subject_token") in self._valid_until
        if scope != SCOPE or not (knows_token if kind == EXCHANGE else is_client):
            self.grants["refused"] += 1
            answer_json(
                request, http.HTTPStatus.BAD_REQUEST, {"error": "invalid_client", "error_description": "unknown"}
            )
            return
        self.grants[kind] += 1
        token = {"access_token": self.new_token(), "token_type": "bearer", "expires_in": int(self._seconds)}
        issued = {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token", "scope": SCOPE}
        answer_json(request, http.HTTPStatus.OK, token | issued)


_SIGNED = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/\d{8}/([\w-]+)/([\w-]+)/aws4_request, ?"
    r"SignedHeaders=([\w;-]+), ?Signature=([0-9a-f]{64})"
)


class SignedProxy(RestProxy):
    """Rejects requests that are not signed with a key for a service and a region, as AWS does.

    Attributes
    ----------
    clients : Counter
        Number of accepted requests by the beginning of the client's name, and of rejected ones, as ``refused``.
    """

    def __init__(self, uri: str, service: str, region: str, key_id: str, secret: str) -> None:
        self.clients: Counter[str] = Counter()
        self._scope = (key_id, region, service)
        self._auth = SigV4Auth(Credentials(key_id, secret), service, region)
        super().__init__(uri, lambda _: None)

    def _forward(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        if self._is_signed(request, body):
            self.clients[(request.headers.get("User-Agent") or "").partition("/")[0]] += 1
            following, request.rfile = request.rfile, io.BytesIO(body)
            super()._forward(request)
            request.rfile = following  # the next request of the connection
            return
        self.clients["refused"] += 1
        message = {"message": "The request signature does not match", "type": "ForbiddenException", "code": 403}
        answer_json(request, http.HTTPStatus.FORBIDDEN, {"error": message})

    def _is_signed(self, request: BaseHTTPRequestHandler, body: bytes) -> bool:
        found = _SIGNED.fullmatch(request.headers.get("Authorization") or "")
        if not found or found.groups()[:3] != self._scope:
            return False
        headers = {name: request.headers[name] for name in found[4].split(";")}
        path, _, query = request.path.partition("?")
        signed = AWSRequest(request.command, f"{self.uri}{path}?{query}", headers, body)
        signed.context["timestamp"] = request.headers["X-Amz-Date"]
        names = self._auth.headers_to_sign(signed)
        canonical = (
            request.command,
            self._auth._normalize_url_path(path),
            "&".join(sorted(query.split("&"))),
            self._auth.canonical_headers(names) + "\n",
            self._auth.signed_headers(names),
            # Iceberg's header has the same hash in another encoding.
            hashlib.sha256(body).hexdigest(),
        )
        text = self._auth.string_to_sign(signed, "\n".join(canonical))
        return bool(self._auth.signature(text, signed) == found[5])


def answer_json(request: BaseHTTPRequestHandler, status: int, content: object) -> None:
    """Answer a request with JSON."""
    data = json.dumps(content).encode()
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(data)))
    request.end_headers()
    if request.command != "HEAD":  # a body would be taken for the beginning of the next answer
        request.wfile.write(data)
