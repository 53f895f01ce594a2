"""The page beside a standalone coordinator, in its process (share.coordinator.web.port).

Rule: the page calls the coordinator as any client does, at its address and with tokens."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping

from coordinator.protocol.addresses import parse_endpoint
from coordinator.service.standalone_config import STORE, Standalone
from sharegroup.cluster_options import connect_options, kafka_config
from sharegroup.web.command import ENDPOINT, INTERVAL_S, check_installed, site_of

_OF_CLIENTS = (ENDPOINT, "share.coordinator.token.file", "share.coordinator.ssl.ca.location")
"""The keys with which a command reaches the coordinator."""
_log = logging.getLogger(__name__)


@contextlib.contextmanager
def page_of(standalone: Standalone, address: str) -> Iterator[None]:
    """The page of the coordinator at ``address``, for a ``with`` block. Raises ShareGroupError if the page can't be
    shown; the coordinator does not start without it."""
    check_installed()
    from sharegroup.web.app import create_app
    from sharegroup.web.public_url import PublicUrl
    from sharegroup.web.server import Address, Server

    server, settings = standalone.server, standalone.settings
    listener = parse_endpoint(server.share_coordinator_listener)
    certificate = server.share_coordinator_ssl_certificate_location
    where = Address(
        host=listener[0] if certificate and listener else "127.0.0.1",
        port=server.share_coordinator_web_port,
        certificate=certificate,
        key=server.share_coordinator_ssl_key_location,
    )
    public = PublicUrl.parse(server.share_coordinator_web_public_url, "share.coordinator.web.public.url")
    config = {key: text for key, text in settings.configs.items() if key != STORE}
    config |= {**settings.kafka_config, "bootstrap.servers": settings.bootstrap_servers, ENDPOINT: address}
    with (
        site_of(config, None, INTERVAL_S, is_tls=bool(certificate), repeated=_connects(config), public=public) as site,
        contextlib.closing(Server(create_app(site), where)) as page,
    ):
        page.start()
        _log.info("the web page is served at %s", page.url)
        yield


def _connects(config: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the words with which the doctor's commands reach this coordinator and its brokers, since a client can't
    use the coordinator's own file. Secrets are redacted."""
    kafka = {key: text for key, text in kafka_config(config).items() if key != "bootstrap.servers"}
    return connect_options(None, {**{key: config[key] for key in _OF_CLIENTS if config.get(key)}, **kafka})
