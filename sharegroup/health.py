"""Checks whether a coordinator is ready: one call to its listener for clients, with their token and TLS."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from coordinator.client.connection import Connection, Tls, TokenRefused, Unreachable
from coordinator.client.endpoints import Endpoints
from coordinator.config.secret_files import read_file
from coordinator.protocol.addresses import parse_endpoint
from coordinator.protocol.errors import ConfigOutOfBounds, CoordinatorUnreachable, NotAuthorized
from coordinator.protocol.wire import Endpoint, Healthy
from coordinator.service.standalone_config import read_config

_ALL = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - addresses to call, where a coordinator listens on all


class Probe(NamedTuple):
    """The coordinator to check, and how to connect to it. ``repr`` shows no token, because Endpoint's shows none."""

    endpoint: Endpoint
    tls: Tls | None


def probe_of_config(path: str) -> Probe:
    """Returns the probe of the coordinator that this file starts on this host, and trusts that coordinator's own
    certificate. Raises ShareGroupError if the file, or a key in it, is wrong."""
    standalone = read_config(path)
    server = standalone.server
    host, port = _address("share.coordinator.listener", server.share_coordinator_listener)
    advertised = parse_endpoint(server.share_coordinator_advertised_listener or server.share_coordinator_listener)
    certificate, tls = server.share_coordinator_ssl_certificate_location, None
    if certificate and advertised:
        roots = read_file("share.coordinator.ssl.certificate.location", certificate)
        tls = Tls(roots=roots, hostname=advertised[0])
    return Probe(Endpoint(host=_ALL.get(host, host), port=port, token=standalone.token(), pid=0), tls)


def probe_of_endpoint(endpoint: str, ca_path: str | None, token_path: str) -> Probe:
    """Returns the probe of any coordinator, to which it connects as clients do. Raises ShareGroupError if the endpoint,
    the certificates or the token file are wrong."""
    host, port = _address("--endpoint", endpoint)
    texts = {"share.coordinator.endpoint": endpoint, "share.coordinator.token.file": token_path}
    if ca_path:
        texts["share.coordinator.ssl.ca.location"] = ca_path
    endpoints = Endpoints.of(texts)
    return Probe(Endpoint(host=host, port=port, token=endpoints.token, pid=0), endpoints.tls_of(host))


def ask(probe: Probe) -> Healthy:
    """Ask the coordinator whether it is ready.

    Raises:
        CoordinatorUnreachable: no coordinator answers there.
        NotAuthorized: the coordinator refuses the token."""
    address = f"{probe.endpoint.host}:{probe.endpoint.port}"
    with contextlib.closing(Connection(probe.endpoint, probe.tls)) as connection:
        try:
            return connection.check_health()
        except TokenRefused:
            raise NotAuthorized(endpoint=address) from None
        except Unreachable as error:
            raise CoordinatorUnreachable(endpoints=address, reason=str(error)) from None


def _address(key: str, text: str) -> tuple[str, int]:
    address = parse_endpoint(text)
    if address is None or not address[1]:
        raise ConfigOutOfBounds(key=key, value=text, bounds="host:port, with a port that is not 0")
    return address
