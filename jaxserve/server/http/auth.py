"""Host: `ApiKeys`, who may call: keys are kept and compared as hashes, in a time that tells nothing of them."""

import base64
import binascii
import hashlib
import secrets

from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.server_config import ServerConfig

CHALLENGE = {"WWW-Authenticate": 'Basic realm="jaxserve", charset="UTF-8"'}  # with it browsers ask for the key


class ApiKeys:
    """Keys come as `Authorization: Bearer KEY`, or as the password of HTTP Basic, which browsers can send."""

    def __init__(self, config: ServerConfig):
        self._clients = [_hash(_bytes(key)) for key in config.api_key]
        self._admin = None if config.admin_key is None else _hash(_bytes(config.admin_key))

    def check(self, authorization: str | None) -> str | None:
        """Which client it is, as a name that does not tell the key; None where no key is asked for.

        Raises `ApiError` of status 401 for a key that is missing or wrong. The admin key opens everything.
        """
        if not self._clients:
            return None
        sent = _hash(_key(authorization))
        known = [*self._clients, *([] if self._admin is None else [self._admin])]
        matches = [secrets.compare_digest(sent, key) for key in known]  # all of them, whichever it is
        if not any(matches):
            raise ApiError(401, "the API key is missing or wrong", code="invalid_api_key", headers=CHALLENGE)
        return sent.hex()[:16]

    def check_admin(self, authorization: str | None) -> None:
        """Raises `ApiError` unless the admin key was sent, by Bearer: browsers send Basic for any page that asks."""
        if self._admin is None:
            raise ApiError(403, "this route is off: start the server with --admin-key", code="no_admin_key")
        is_bearer = (authorization or "").lower().startswith("bearer ")
        if not secrets.compare_digest(_hash(_key(authorization if is_bearer else None)), self._admin):
            raise ApiError(401, "this route needs the admin key", code="invalid_api_key")


def _bytes(key: str) -> bytes:
    """As an environment or a command line has it, and clients send it."""
    return key.encode("utf-8", "surrogateescape")


def _hash(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _key(authorization: str | None) -> bytes:
    """The key of a header, empty where there is none."""
    scheme, _, value = (authorization or "").partition(" ")
    sent = value.encode("latin-1").strip()  # headers are read as Latin-1, whatever they are
    if scheme.lower() == "bearer":
        return sent
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(sent, validate=True).partition(b":")[2]
        except binascii.Error:
            return b""
    return b""
