"""Host: `ApiKeys`: checks the keys that clients and the admin send, as hashes and in constant time."""

import base64
import binascii
import hashlib
import secrets

from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.server_config import ServerConfig

CHALLENGE = {"WWW-Authenticate": 'Basic realm="jaxserve", charset="UTF-8"'}  # makes browsers prompt for the key


class ApiKeys:
    """Accepts a key as `Authorization: Bearer KEY` or as the password of HTTP Basic, which browsers can send."""

    def __init__(self, config: ServerConfig):
        self._clients = [_hash(_key_bytes(key)) for key in config.api_key]
        self._admin = None if config.admin_key is None else _hash(_key_bytes(config.admin_key))

    def check(self, authorization: str | None) -> str | None:
        """The client's name, derived from its key without revealing it; None when the server has no API keys.

        Raises `ApiError` with status 401 for a missing or wrong key. The admin key opens every route.
        """
        if not self._clients:
            return None
        sent = _hash(_sent_key(authorization))
        valid = [*self._clients, *([] if self._admin is None else [self._admin])]
        matches = [secrets.compare_digest(sent, key) for key in valid]  # compares all of them, for constant time
        if not any(matches):
            raise ApiError(401, "the API key is missing or wrong", code="invalid_api_key", headers=CHALLENGE)
        return sent.hex()[:16]

    def check_admin(self, authorization: str | None) -> None:
        """Raises `ApiError` unless the admin key was sent by Bearer: browsers attach Basic to any page's requests."""
        if self._admin is None:
            raise ApiError(403, "this route is off: start the server with --admin-key", code="no_admin_key")
        is_bearer = (authorization or "").lower().startswith("bearer ")
        if not secrets.compare_digest(_hash(_sent_key(authorization if is_bearer else None)), self._admin):
            raise ApiError(401, "this route needs the admin key", code="invalid_api_key")


def _key_bytes(key: str) -> bytes:
    """The bytes of a key from the environment or the command line, which are those that clients send."""
    return key.encode("utf-8", "surrogateescape")


def _hash(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _sent_key(authorization: str | None) -> bytes:
    """The key in an Authorization header; empty when there is none."""
    scheme, _, value = (authorization or "").partition(" ")
    credentials = value.encode("latin-1").strip()  # Starlette decodes header bytes as Latin-1
    if scheme.lower() == "bearer":
        return credentials
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(credentials, validate=True).partition(b":")[2]
        except binascii.Error:
            return b""
    return b""
