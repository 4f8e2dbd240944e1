"""Host: `AllowedHosts`: the host names under which a server may be addressed.

A web page can make its own name resolve to 127.0.0.1 (DNS rebinding). Browsers then let it read the server's responses,
as those of its own site; only the Host header still shows the page's name.
"""

from starlette.types import Scope

from jaxserve.server.hosts import ANY, host_of, is_loopback, matches, normalized
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.server_config import ServerConfig


class AllowedHosts:
    """On a loopback address loopback names and `allowed_host` are served; on any other `allowed_host` alone, or every
    name without that option. Browsers cannot reach a Unix socket, which serves every name."""

    def __init__(self, config: ServerConfig):
        self._is_exposed = config.is_exposed
        is_open = config.uds is not None or (config.is_exposed and not config.allowed_host)
        self._patterns = (ANY,) if is_open else tuple(map(normalized, config.allowed_host))

    def check(self, scope: Scope, *, is_public: bool) -> None:
        """Raises `ApiError`: 400 for headers that RFC 9112 forbids, 403 for a name that is not served.

        is_public: the route needs no key. Where other machines can connect, probes reach it under any name: they use
        addresses that the operator does not know beforehand.
        """
        values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if not values and scope["http_version"] == "1.0":  # which no browser sends
            return
        host = host_of(values[0]) if len(values) == 1 else None
        if host is None:
            raise ApiError(400, "a request must have one Host header, which holds a host name and at most a port")
        if not (is_public and self._is_exposed) and not self._is_served(host):
            text = (
                f"requests for the host {host[:200]} are refused: if it is this server's, start it with --allowed-host"
            )
            raise ApiError(403, f"{text} {host[:200]}", code="host_not_allowed")

    def _is_served(self, host: str) -> bool:
        is_own = is_loopback(host) and not self._is_exposed
        return is_own or any(matches(host, pattern) for pattern in self._patterns)
