"""The command ``sharegroup web``: shows the page until Ctrl-C."""

from __future__ import annotations

import contextlib
import importlib.util
import secrets
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from sharegroup.cluster_options import Cluster, cluster_options, connect_options, kafka_config, settings
from sharegroup.option_types import Seconds, Whole

if TYPE_CHECKING:
    from coordinator.protocol.rights import Tokens
    from sharegroup.doctor.findings import Finding
    from sharegroup.web.public_url import PublicUrl
    from sharegroup.web.site import Site

DEFAULT_PORT = 9396
INTERVAL_S = 5.0
ENDPOINT = "share.coordinator.endpoint"


@click.command(short_help="A page in the browser to watch groups, and to act on them.")
@cluster_options
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on. Any address but loopback needs --tls-certificate and --tls-key.",
)
@click.option("--port", type=Whole(min=0, max=65_535), default=DEFAULT_PORT, show_default=True, help="0: any free.")
@click.option("--tls-certificate", default="", metavar="FILE", help="The certificate, in PEM, with its chain.")
@click.option("--tls-key", default="", metavar="FILE", help="The certificate's private key, in PEM.")
@click.option(
    "--token-file",
    default="",
    metavar="FILE",
    help="The tokens to sign in with, a line RIGHTS NAME:TOKEN for each. Without this file, people sign in with the "
    f"coordinators' tokens if {ENDPOINT} is set; if it is not, the command makes a token and prints it.",
)
@click.option(
    "--public-url",
    default="",
    metavar="URL",
    help="The page's address in browsers, behind a proxy or an ingress: https://ops.example/groups.",
)
@click.option(
    "--interval",
    type=Seconds(min=1.0),
    default=INTERVAL_S,
    show_default=True,
    help="Seconds between two looks at all groups, at least.",
)
def web(
    cluster: Cluster,
    host: str,
    port: int,
    tls_certificate: str,
    tls_key: str,
    token_file: str,
    public_url: str,
    interval: float,
) -> None:
    """Show all groups in the browser: what is stuck, who holds it and since when, what died and why.

    Sign in with a token: with the right `read` you can look, with the right `admin` also act. Needs the extra
    sharegroup[web].

    \b
    Example:
      sharegroup web --bootstrap-server localhost:9092 --token-file tokens \\
          --host 0.0.0.0 --tls-certificate web.pem --tls-key web.key"""
    check_installed()
    from coordinator.service.process.end_signals import set_by_signal
    from coordinator.service.process.log_format import TEXT, log_lines
    from sharegroup.web.app import create_app
    from sharegroup.web.public_url import PublicUrl
    from sharegroup.web.server import Address, Server

    address = Address(host=host, port=port, certificate=tls_certificate, key=tls_key)
    address.check()
    public = PublicUrl.parse(public_url)
    config = settings(*cluster)
    tokens, told = _tokens(config, token_file)
    repeated = connect_options(cluster.config_path, cluster.properties)
    with (
        log_lines(sys.stderr, TEXT),
        site_of(config, tokens, interval, is_tls=bool(tls_certificate), repeated=repeated, public=public) as site,
    ):
        site.admin.list_groups(only_ids=True)  # a wrong address or token of the page's own ends the command at once
        server = Server(create_app(site), address)
        server.start()
        click.echo(f"The page is at {server.url}" + (f", and in browsers at {public_url}" if public_url else ""))
        click.echo(told)
        ended = threading.Event()
        set_by_signal(ended)
        with contextlib.closing(server):
            ended.wait()


def check_installed() -> None:
    """Raises WebNotInstalled if a package of the page is missing."""
    from sharegroup.web.errors import WebNotInstalled

    for name in ("jinja2", "starlette", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            raise WebNotInstalled(package=name)


def _tokens(config: Mapping[str, str], path: str) -> tuple[Tokens | None, str]:
    """Returns the page's own tokens, None if the coordinators know the tokens; and what to tell the user about them."""
    from coordinator.config.secret_files import read_secret
    from coordinator.protocol.errors import InvalidToken
    from coordinator.protocol.rights import Right, Tokens

    if path:
        tokens = Tokens.parse(read_secret("--token-file", path).decode("utf-8", "replace"), path)
        if any(caller.is_bound for _, caller in tokens.holders):
            reason = "the page's own tokens can't have groups=, topics= or dlq=; those of a coordinator's file can."
            raise InvalidToken(source=path, reason=reason)
        if not any(caller.rights & {Right.READ, Right.ADMIN} for _, caller in tokens.holders):
            raise InvalidToken(source=path, reason="no token has the right `read` or `admin`: nobody can sign in.")
        return tokens, f"Its tokens: {path}"
    if config.get(ENDPOINT):
        return None, "Sign in with a token of the coordinators."
    token = secrets.token_urlsafe(32)
    return Tokens.parse(token, "the page"), f"Sign in with this token, which holds until the page ends: {token}"


@contextlib.contextmanager
def site_of(
    config: Mapping[str, str],
    tokens: Tokens | None,
    interval_s: float,
    *,
    is_tls: bool,
    repeated: tuple[str, ...] = (),
    public: PublicUrl | None = None,
) -> Iterator[Site]:
    """The parts of the page on this cluster, for a ``with`` block. ``tokens`` None: the coordinators of
    share.coordinator.endpoint check tokens. ``repeated``: the words with which other commands name the cluster."""
    from coordinator.admin.admin import Admin
    from coordinator.kafka.broker_probe import brokers_answer
    from sharegroup.doctor.facts import Examination
    from sharegroup.doctor.limits import HELD_LONG_MS
    from sharegroup.doctor.rules import examine
    from sharegroup.web.examinations import Examinations
    from sharegroup.web.jobs import Jobs
    from sharegroup.web.outages import Outages
    from sharegroup.web.public_url import PublicUrl
    from sharegroup.web.records import KafkaReads
    from sharegroup.web.sessions import Sessions
    from sharegroup.web.sign_in_tokens import CoordinatorTokens, OwnTokens
    from sharegroup.web.site import Site
    from sharegroup.web.watch import Watch

    with contextlib.ExitStack() as stack:
        admin = stack.enter_context(contextlib.closing(Admin(config)))

        def examined(group_id: str) -> list[Finding]:
            return examine(Examination(admin, config, HELD_LONG_MS, repeated, most_runs=MOST_EXAMINED).group(group_id))

        watch = stack.enter_context(contextlib.closing(Watch(admin, interval_s)))
        sessions = stack.enter_context(contextlib.closing(Sessions()))
        examinations = stack.enter_context(contextlib.closing(Examinations(examined)))
        jobs = stack.enter_context(contextlib.closing(Jobs()))
        asks = brokers_answer(kafka_config(config))
        outages = Outages(config["bootstrap.servers"], asks, watch.waiting, watch.notify)
        stack.enter_context(contextlib.closing(outages))
        watch.start()
        outages.start()
        yield Site(
            admin=admin,
            sign_in_tokens=CoordinatorTokens(config) if tokens is None else OwnTokens(tokens, admin),
            sessions=sessions,
            watch=watch,
            examinations=examinations,
            kafka=KafkaReads(kafka_config(config)),
            jobs=jobs,
            outages=outages,
            cluster=config["bootstrap.servers"],
            is_tls=is_tls,
            public=public or PublicUrl(),
        )


MOST_EXAMINED = 1_000
"""The doctor scans up to this many runs of a group for the page: the first ones, which hold back start offsets."""
