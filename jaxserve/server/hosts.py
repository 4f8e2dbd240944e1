"""Host: host names and addresses as text, as they stand in options and in Host headers."""

import ipaddress
import re

ANY = "*"
_HEADER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.~!$&'()*+,;=%-]+)(?::\d*)?", re.ASCII)  # RFC 3986, with an optional port
_NAME = re.compile(r"(\*\.)?[\w-]+(\.[\w-]+)*\.?", re.ASCII)


def host_of(header: str) -> str | None:
    """The name or address in a Host header, normalized and without the port; None for an invalid header."""
    found = _HEADER.fullmatch(header)
    return None if found is None else normalized(found[1])


def normalized(host: str) -> str:
    """One spelling of a name or address, so that equal ones compare equal."""
    host = host.strip("[]").removesuffix(".").lower()
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def is_loopback(host: str) -> bool:
    """Whether a normalized name or address is 127.0.0.0/8, ::1, localhost or a name below it (RFC 6761)."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_pattern(text: str) -> bool:
    """Whether a text is a name or address without port, `*.NAME` or `*`."""
    try:
        return text == ANY or bool(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        return _NAME.fullmatch(text) is not None


def matches(host: str, pattern: str) -> bool:
    """Whether a normalized name or address is one of those that a normalized pattern means."""
    return pattern in (ANY, host) or (pattern.startswith("*.") and host.endswith(pattern[1:]))
