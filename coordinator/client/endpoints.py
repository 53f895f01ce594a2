"""Standalone coordinators, by their addresses: each of them knows which one serves a group.

Rule: the token is sent only to configured addresses, and to addresses that such a coordinator named over the same TLS.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec

from coordinator.client.connection import HEALTH_TIMEOUT_S, Connection, Refused, Tls, TokenRefused, Unreachable
from coordinator.config.resolved import CoordinatorConfig
from coordinator.protocol.addresses import is_loopback, parse_endpoint, parse_endpoints, show_address
from coordinator.protocol.errors import (
    BrokerSecurityFailed,
    CoordinatorUnreachable,
    NotAuthorized,
    OutageTooLong,
    ShareGroupError,
)
from coordinator.protocol.rights import Right
from coordinator.protocol.secret_files import read_certificates, read_token
from coordinator.protocol.wire import Endpoint, FindCoordinator

CA_KEY = "share.coordinator.ssl.ca.location"


@dataclass(frozen=True, kw_only=True)
class Endpoints:
    """A :class:`~coordinator.client.client.Directory` of standalone coordinators. ``tls`` None: TLS with the system's
    certificates, but none on loopback."""

    addresses: tuple[tuple[str, int], ...]
    token: str = field(repr=False)
    tls: Tls | None = None

    by_group: ClassVar[bool] = True

    @classmethod
    def of(
        cls, texts: Mapping[str, str], rights: tuple[Right, ...] = (Right.MEMBER,), token: str | None = None
    ) -> Endpoints:
        """The endpoints that the coordinator's configs name. ``rights``: which token of a file with several
        is used: the first one with the first of these rights that a token has. ``token``: this one, and no file's.

        Raises:
            TokenMissing, InvalidToken, UnsafeFile, UnusableFile: the token, or the file of certificates, is unusable.
        """
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
        """The addresses, for logs and error texts."""
        return ",".join(show_address(*address) for address in self.addresses)

    def tls_of(self, host: str) -> Tls | None:
        """The TLS settings for this host; None: plain text."""
        return self.tls or (None if is_loopback(host) else Tls())

    def connect(self, group_id: str = "") -> Connection:
        """A connection to the coordinator that serves the group; without a group, to any.

        Raises:
            Unreachable: no coordinator answers.
            NotAuthorized: the token is wrong.
            CoordinatorVersionMismatch: the coordinator speaks another version of the protocol.
            ShareGroupError: a retriable error of a fleet that moves the group now.
        """
        failed: list[Exception] = []
        for address in random.sample(self.addresses, len(self.addresses)):
            try:
                return self._ask(address, group_id)
            except TokenRefused:
                raise NotAuthorized(endpoint=show_address(*address)) from None
            except Unreachable as error:
                kind = Refused if isinstance(error, Refused) else Unreachable
                failed.append(kind(f"{show_address(*address)}: {error}"))
            except ShareGroupError as error:
                if not error.retriable:
                    raise
                failed.append(error)
        # An address that may answer later counts more than one at which nobody can.
        raise next((error for error in reversed(failed) if not isinstance(error, Refused)), failed[-1])

    def named(self, connection: Connection) -> str:
        """The coordinator behind the connection in words, for the log."""
        endpoint = connection.endpoint
        process = f", process {endpoint.pid}" if endpoint.pid else ""
        return f"{show_address(endpoint.host, endpoint.port)}{process}"

    def naming_log(self, error: ShareGroupError) -> ShareGroupError:
        """The error itself: the log of a standalone coordinator is where its administrator keeps it."""
        return error

    def gone(self, group_id: str, reason: str) -> ShareGroupError:
        """The error for coordinators that gave no answer until the retry timeout."""
        return CoordinatorUnreachable(endpoints=self.where, reason=reason)

    def gave_up(self, group_id: str, timeout_ms: int, error: ShareGroupError) -> ShareGroupError:
        """The error for a coordinator that refused with retriable errors until the retry timeout."""
        brokers = f"those of the coordinators at {self.where}"
        reason = str(error).rstrip(".")
        return OutageTooLong(group_id=group_id, timeout_ms=timeout_ms, reason=reason, addresses=brokers, log="")

    def renew(self, connection: Connection, error: BrokerSecurityFailed) -> None:
        """Raises the error: the credentials of a standalone coordinator are its administrator's."""
        raise error

    # --- inside

    def _ask(self, address: tuple[str, int], group_id: str) -> Connection:
        connection = self._connection(address)
        try:
            if not group_id:
                return self._checked(connection)
            found = connection.call(FindCoordinator(group_id=group_id), HEALTH_TIMEOUT_S)
            named = parse_endpoint(found.endpoint)
        except BaseException:
            connection.close()
            raise
        if named is None or named == address:
            return connection
        connection.close()
        owner = self._connection(named)
        try:
            return self._checked(owner)
        except BaseException:
            owner.close()
            raise

    def _connection(self, address: tuple[str, int]) -> Connection:
        host, port = address
        return Connection(Endpoint(host=host, port=port, token=self.token, pid=0), self.tls_of(host))

    def _checked(self, connection: Connection) -> Connection:
        health = connection.check_health()
        connection.endpoint = msgspec.structs.replace(connection.endpoint, pid=health.pid, version=health.version)
        return connection
