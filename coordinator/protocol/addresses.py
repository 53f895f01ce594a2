"""Parses and formats addresses, ``host:port``. No name is resolved."""

from __future__ import annotations

import ipaddress
import re

_ENDPOINT = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([\w.-]+)):(\d{1,5})", re.ASCII)
_BROKER = re.compile(
    r"(?:(?:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?(?:\[[0-9A-Fa-f:.%]+\]|[\w.-]+)(?::(\d{1,5}))?",
    re.ASCII | re.IGNORECASE,
)
_SCHEME = re.compile(r"([A-Za-z][\w+.-]*)://.*", re.DOTALL)
_IPV6 = re.compile(r"([0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f.]*):(\d{1,5})", re.ASCII)


def broker_problem(text: str) -> str:
    """Returns what is wrong with the first bad entry of a list of brokers, and how to write it; empty if all are good.
    As in librdkafka, the port may be left out (9092), a security protocol may stand before the host, and empty entries
    are skipped."""
    for address in filter(None, map(str.strip, text.split(","))):
        match = _BROKER.fullmatch(address)
        if match is None:
            if (ipv6 := _IPV6.fullmatch(address)) is not None:
                return f"an IPv6 address has brackets: write [{ipv6.group(1)}]:{ipv6.group(2)} instead of {address}."
            scheme = _SCHEME.fullmatch(address)
            why = f": {scheme.group(1)} is no security protocol of Kafka's" if scheme is not None else ""
            return f"{address!r} is not host:port{why}; several brokers are separated by commas."
        if not 0 < int(match.group(1) or 9092) <= 65_535:
            return f"{address!r} has no valid port: ports are 1 to 65535."
    return "" if text.replace(",", "").strip() else f"{text!r} names no broker: write host:port."


def parse_endpoint(text: str) -> tuple[str, int] | None:
    """The host and port in ``host:port`` or ``[ipv6]:port``; None for other texts. A listener may have port 0, which
    stands for any free port."""
    match = _ENDPOINT.fullmatch(text.strip())
    if match is None or int(match.group(3)) > 65_535:
        return None
    return match.group(1) or match.group(2), int(match.group(3))


def parse_endpoints(text: str) -> tuple[tuple[str, int], ...] | None:
    """Returns the hosts and ports of endpoints, separated by commas; None for other texts, or if a port is 0."""
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
