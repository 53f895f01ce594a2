"""Standalone coordinators, by their addresses. Each of them answers for any group, or passes the request on to the
group's owner.

Each group has its own order of the addresses, by a hash that is the same in all processes. So the members of a group
meet at one coordinator, and groups spread over all. While a coordinator is away, clients use the group's next one.

Rule: the token is sent only to configured addresses."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

import msgspec

from coordinator.client.connection import Connection, Refused, Tls, TokenRefused, Unreachable
from coordinator.config.resolved import CoordinatorConfig
from coordinator.config.secret_files import read_certificates, read_token
from coordinator.protocol.addresses import is_loopback, parse_endpoints, show_address
from coordinator.protocol.errors import (
    BrokerSecurityFailed,
    CoordinatorUnreachable,
    NotAuthorized,
    OutageTooLong,
    ShareGroupError,
)
from coordinator.protocol.rights import Right
from coordinator.protocol.wire import Endpoint

CA_KEY = "share.coordinator.ssl.ca.location"
AWAY_S = 30.0
"""A coordinator that does not answer, or can't serve, is asked again after this many seconds. Until then the next one
is asked."""


def in_order(group_id: str, addresses: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """The addresses in the group's order, which stays when others come or go: rendezvous hashing."""

    def rank(address: tuple[str, int]) -> bytes:
        return hashlib.sha256(f"{group_id}\0{show_address(*address)}".encode()).digest()

    return sorted(addresses, key=rank)


@dataclass(frozen=True, kw_only=True)
class Endpoints:
    """Finds standalone coordinators, with the methods of :class:`~coordinator.client.on_demand.OnDemand`. ``tls`` None:
    TLS with the system's certificates, but none on loopback."""

    addresses: tuple[tuple[str, int], ...]
    token: str = field(repr=False)
    tls: Tls | None = None
    _away_s: dict[tuple[str, int], float] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(
        cls, texts: Mapping[str, str], rights: tuple[Right, ...] = (Right.MEMBER,), token: str | None = None
    ) -> Endpoints:
        """The endpoints that the coordinator's configs name. ``rights``: of a file with several tokens, the first token
        with the first of these rights is used. ``token``: this token is used, and no file is read. Raises TokenMissing,
        InvalidToken, UnsafeFile or UnusableFile if the token, or the file of certificates, is unusable."""
        config = CoordinatorConfig.parse(texts)
        addresses = parse_endpoints(config.share_coordinator_endpoint)
        assert addresses
        ca = config.share_coordinator_ssl_ca_location
        return cls(
            addresses=addresses,
            token=read_token(config.share_coordinator_token_file, rights=rights) if token is None else token,
            tls=Tls(roots=read_certificates(CA_KEY, ca)) if ca else None,
        )

    @property
    def where(self) -> str:
        return ",".join(show_address(*address) for address in self.addresses)

    def tls_of(self, host: str) -> Tls | None:
        return self.tls or (None if is_loopback(host) else Tls())

    @property
    def are_several(self) -> bool:
        return len(self.addresses) > 1

    def connect(self, group_id: str = "") -> Connection:
        """A connection to the first coordinator of the group's that answers.

        Raises:
            Unreachable: no coordinator answers.
            NotAuthorized: the token is wrong.
            CoordinatorVersionMismatch: the coordinator speaks another version of the protocol."""
        failed: list[Unreachable] = []
        for address in self._in_order(group_id):
            try:
                return self._connected(address)
            except TokenRefused:
                raise NotAuthorized(endpoint=show_address(*address)) from None
            except Unreachable as error:
                self._away_s[address] = time.monotonic()
                kind = Refused if isinstance(error, Refused) else Unreachable
                failed.append(kind(f"{show_address(*address)}: {error}"))
        # Prefer the error of an address that may answer later.
        raise next((error for error in reversed(failed) if not isinstance(error, Refused)), failed[-1])

    def turn_from(self, connection: Connection) -> None:
        self._away_s[connection.endpoint.host, connection.endpoint.port] = time.monotonic()

    def may_go_back(self, group_id: str, connection: Connection) -> bool:
        return self._in_order(group_id)[0] != (connection.endpoint.host, connection.endpoint.port)

    def named(self, connection: Connection) -> str:
        endpoint = connection.endpoint
        process = f", process {endpoint.pid}" if endpoint.pid else ""
        return f"{show_address(endpoint.host, endpoint.port)}{process}"

    def naming_log(self, error: ShareGroupError) -> ShareGroupError:
        """Returns the error itself: only the administrator knows where the log of a standalone coordinator is."""
        return error

    def gone(self, group_id: str, reason: str) -> ShareGroupError:
        return CoordinatorUnreachable(endpoints=self.where, reason=reason)

    def gave_up(self, group_id: str, timeout_ms: int, error: ShareGroupError) -> ShareGroupError:
        brokers = f"those of the coordinators at {self.where}"
        reason = str(error).rstrip(".")
        return OutageTooLong(group_id=group_id, timeout_ms=timeout_ms, reason=reason, addresses=brokers, log="")

    def renew(self, connection: Connection, error: BrokerSecurityFailed) -> None:
        """Raises the error: only an administrator can renew the credentials of a standalone coordinator."""
        raise error

    def _in_order(self, group_id: str) -> list[tuple[str, int]]:
        """The addresses in the group's order; those that were away just now come last."""
        now_s = time.monotonic()
        order = in_order(group_id, self.addresses)
        return sorted(order, key=lambda address: now_s - self._away_s.get(address, -inf) < AWAY_S)

    def _connected(self, address: tuple[str, int]) -> Connection:
        host, port = address
        connection = Connection(Endpoint(host=host, port=port, token=self.token, pid=0), self.tls_of(host))
        try:
            health = connection.check_health()
        except BaseException:
            connection.close()
            raise
        connection.endpoint = msgspec.structs.replace(connection.endpoint, pid=health.pid, version=health.version)
        return connection
