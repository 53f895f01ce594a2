"""``host:port``, as texts say it and as programs need it. Nothing is looked up."""

from __future__ import annotations

import ipaddress
import re

_ENDPOINT = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([\w.-]+)):(\d{1,5})", re.ASCII)


def parse_endpoint(text: str) -> tuple[str, int] | None:
    """``host:port`` or ``[ipv6]:port``, else None. Port 0 is any free one, which only a listener can have."""
    found = _ENDPOINT.fullmatch(text.strip())
    if found is None or int(found.group(3)) > 65_535:
        return None
    return found.group(1) or found.group(2), int(found.group(3))


def parse_endpoints(text: str) -> tuple[tuple[str, int], ...] | None:
    """Endpoints separated by commas, at least one and none with port 0, else None."""
    found = [parse_endpoint(part) for part in text.split(",")]
    whole = tuple(each for each in found if each is not None and each[1])
    return whole if len(whole) == len(found) else None


def show_address(host: str, port: int) -> str:
    """``host:port``, as parse_endpoint reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this host can connect to it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
