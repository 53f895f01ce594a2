"""Addresses: parses ``host:port`` and formats it. No name is resolved."""

from __future__ import annotations

import ipaddress
import re

_ENDPOINT = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([\w.-]+)):(\d{1,5})", re.ASCII)


def parse_endpoint(text: str) -> tuple[str, int] | None:
    """``host:port`` or ``[ipv6]:port``, else None. Port 0 is any free one, which only a listener can have."""
    match = _ENDPOINT.fullmatch(text.strip())
    if match is None or int(match.group(3)) > 65_535:
        return None
    return match.group(1) or match.group(2), int(match.group(3))


def parse_endpoints(text: str) -> tuple[tuple[str, int], ...] | None:
    """Endpoints separated by commas, at least one and none with port 0, else None."""
    parsed = [parse_endpoint(part) for part in text.split(",")]
    valid = tuple(endpoint for endpoint in parsed if endpoint is not None and endpoint[1])
    return valid if len(valid) == len(parsed) else None


def show_address(host: str, port: int) -> str:
    """The text ``host:port``, as parse_endpoint reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this host can connect to the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
