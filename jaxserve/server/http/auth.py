"""Host: `ApiKeys`: checks the keys that clients and the admin send, as hashes and in constant time."""

import base64
import binascii
import hashlib
import secrets

from starlette.datastructures import Headers

from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.server_config import ServerConfig

CHALLENGE = {"WWW-Authenticate": 'Basic realm="jaxserve", charset="UTF-8"'}  # makes browsers prompt for the key


class ApiKeys:
    """Accepts a key as `Authorization: Bearer KEY`, as `X-API-Key: KEY`, or as the password of HTTP Basic, which
    browsers can send. Where several of these headers are sent, all must hold the same key: proxies and servers that
    each read another one would disagree about the client."""

    def __init__(self, config: ServerConfig):
        self._clients = [_hash(_key_bytes(key)) for key in config.api_key]
        self._admin = None if config.admin_key is None else _hash(_key_bytes(config.admin_key))

    def check(self, headers: Headers) -> str | None:
        """The client's name, derived from its key without revealing it; None when the server has no API keys.

        Raises `ApiError` with status 401 for a missing or wrong key. The admin key opens every route.
        """
        if not self._clients:
            return None
        sent = _hash(_sent_key(headers))
        valid = [*self._clients, *([] if self._admin is None else [self._admin])]
        matches = [secrets.compare_digest(sent, key) for key in valid]  # compares all of them, for constant time
        if not any(matches):
            raise ApiError(401, "the API key is missing or wrong", code="invalid_api_key", headers=CHALLENGE)
        return sent.hex()[:16]

    def check_admin(self, headers: Headers) -> None:
        """Raises `ApiError` unless the admin key was sent, and not by Basic, which browsers attach to any page's
        requests."""
        if self._admin is None:
            raise ApiError(403, "this route is off: start the server with --admin-key", code="no_admin_key")
        has_basic = any(_scheme(value) == "basic" for value in headers.getlist("authorization"))
        if not secrets.compare_digest(_hash(b"" if has_basic else _sent_key(headers)), self._admin):
            raise ApiError(401, "this route needs the admin key", code="invalid_api_key")


def _key_bytes(key: str) -> bytes:
    """The bytes of a key from the environment or the command line, which are those that clients send."""
    return key.encode("utf-8", "surrogateescape")


def _hash(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _sent_key(headers: Headers) -> bytes:
    """The key that the headers hold; empty when there is none. Raises `ApiError` for headers with different keys."""
    keys = {_authorization_key(value) for value in headers.getlist("authorization")}
    keys |= {value.encode("latin-1").strip() for value in headers.getlist("x-api-key")}
    if len(keys) > 1:
        message = "Authorization and X-API-Key are sent with different keys: send one header, with one key"
        raise ApiError(401, message, code="invalid_api_key", headers=CHALLENGE)
    return keys.pop() if keys else b""


def _scheme(authorization: str) -> str:
    return authorization.partition(" ")[0].lower()


def _authorization_key(authorization: str) -> bytes:
    credentials = authorization.partition(" ")[2].encode("latin-1").strip()  # Starlette decodes headers as Latin-1
    if _scheme(authorization) == "bearer":
        return credentials
    if _scheme(authorization) == "basic":
        try:
            return base64.b64decode(credentials, validate=True).partition(b":")[2]
        except binascii.Error:
            return b""
    return b""
