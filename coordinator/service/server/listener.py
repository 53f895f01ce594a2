"""The listener of a coordinator: its address, certificate and key.

Rules: a wrong address, certificate or key raises a named error before anything is started. Without TLS the listener
accepts connections of this host only."""

from __future__ import annotations

import socket
import ssl
import tempfile
from dataclasses import dataclass, field

from coordinator.config.resolved import ServerConfig
from coordinator.config.secret_files import read_file, read_secret
from coordinator.protocol.addresses import is_loopback, parse_endpoint, show_address
from coordinator.protocol.errors import ListenerNotAvailable, MissingConfig, ShareGroupError, UnusableFile

LOOPBACK = "127.0.0.1"
_CERTIFICATE = "share.coordinator.ssl.certificate.location"
_KEY = "share.coordinator.ssl.key.location"


class TlsRequired(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """share.coordinator.listener={listener} can be reached from other hosts, and so needs TLS: set
    share.coordinator.ssl.certificate.location and share.coordinator.ssl.key.location, or listen on loopback
    (127.0.0.1) only."""


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A listener. ``port`` 0: any free one. ``certificate`` and ``key`` are PEM, empty for no TLS. ``advertised``: the
    ``host:port`` that clients use, empty for the listener's own."""

    host: str = LOOPBACK
    port: int = 0
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    advertised: str = ""

    @property
    def location(self) -> str:
        return f"grpc{'+tls' if self.certificate else ''}://{show_address(self.host, self.port)}"


def listener_of(config: ServerConfig) -> Listener:
    """The listener that the configuration describes.

    Raises:
        TlsRequired: the address is not this host's own, and no certificate is given.
        MissingConfig: the certificate has no key, the key no certificate, or an address of all interfaces is not
            accompanied by one that clients can use.
        UnusableFile, UnsafeFile: the certificate or the key can't be read, or others may read the key.
        ListenerNotAvailable: the address can't be bound."""
    found = parse_endpoint(config.share_coordinator_listener)
    assert found is not None
    host, port = found
    certificate, key = _certificate(config)
    if not certificate and not is_loopback(host):
        raise TlsRequired(listener=config.share_coordinator_listener)
    advertised = config.share_coordinator_advertised_listener
    if not advertised and host in ("0.0.0.0", "::"):  # noqa: S104 - it is compared with, not bound
        raise MissingConfig(
            key="share.coordinator.advertised.listener",
            why="it listens on all addresses, and clients need the one by which they reach it.",
        )
    _try_address(host, port)
    return Listener(host=host, port=port, certificate=certificate, key=key, advertised=advertised)


def _certificate(config: ServerConfig) -> tuple[bytes, bytes]:
    certificate_path = config.share_coordinator_ssl_certificate_location
    key_path = config.share_coordinator_ssl_key_location
    if not certificate_path and not key_path:
        return b"", b""
    for name, path, other in ((_CERTIFICATE, certificate_path, _KEY), (_KEY, key_path, _CERTIFICATE)):
        if not path:
            raise MissingConfig(key=name, why=f"{other} is, and TLS needs both.")
    certificate, key = read_file(_CERTIFICATE, certificate_path), read_secret(_KEY, key_path)
    _check_pair(certificate_path, certificate, key_path, key)
    return certificate, key


def _check_pair(certificate_path: str, certificate: bytes, key_path: str, key: bytes) -> None:
    """Check the pair here, because gRPC reports nothing more than that the server did not start. Raises UnusableFile if
    a file holds no PEM, or the key does not belong to the certificate."""
    for marker, name, path, content in (
        (b"-----BEGIN CERTIFICATE-----", _CERTIFICATE, certificate_path, certificate),
        (b"PRIVATE KEY-----", _KEY, key_path, key),
    ):
        if marker not in content:
            raise UnusableFile(key=name, path=path, reason=f"it has no block {marker.decode()} in PEM.")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with (
        tempfile.NamedTemporaryFile() as pair
    ):  # checks the bytes that were read, whatever the files hold by now; its mode is 0600
        pair.write(certificate + b"\n" + key)
        pair.flush()
        try:
            context.load_cert_chain(pair.name, password=lambda: b"")
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or str(error)
            reason = f"with {certificate_path}: {reason}; it must be that certificate's, and have no password."
            raise UnusableFile(key=_KEY, path=key_path, reason=reason) from None


def _try_address(host: str, port: int) -> None:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
            trial.listen()
    except OSError as error:
        raise ListenerNotAvailable(listener=show_address(host, port), reason=error.strerror) from None
