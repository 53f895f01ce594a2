"""``sharegroup coordinator``: a standalone coordinator, and the look whether one is ready."""

from __future__ import annotations

import logging
import sys

import click

from coordinator.protocol.errors import ShareGroupError
from coordinator.service.process.log_format import JSON, TEXT, log_lines

_log = logging.getLogger(__name__)

_CONFIG = click.option(
    "--config",
    "config_path",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="A Java properties file; conf/coordinator.properties has all keys. ${env:NAME} is taken from the environment.",
)


@click.group(invoke_without_command=True)
@_CONFIG
@click.option(
    "--log-format",
    type=click.Choice([TEXT, JSON]),
    default=TEXT,
    show_default=True,
    help="One line an event, on standard error.",
)
@click.pass_context
def coordinator(context: click.Context, config_path: str | None, log_format: str) -> None:
    """Run a standalone coordinator until SIGTERM or SIGINT.

    Spark queries name it in share.coordinator.endpoint. Its token is in the file that share.coordinator.token.file
    names, or in the environment: SHAREGROUP_COORDINATOR_TOKEN.
    """
    if context.invoked_subcommand is not None:
        return
    if config_path is None:
        raise click.UsageError("Missing option '--config'.", context)
    from coordinator.service.standalone import serve  # it loads a second of libraries: not for --help
    from coordinator.service.standalone_config import read_config

    try:
        serve(read_config(config_path), log_format)
    except ShareGroupError as error:
        if log_format != JSON:
            raise
        with log_lines(sys.stderr, JSON):
            _log.error("failed: %s: %s", type(error).__name__, error)
        context.exit(1)


@coordinator.command()
@_CONFIG
@click.option("--endpoint", metavar="HOST:PORT", help="Ask this one, instead of the one that --config starts.")
@click.option("--ca", "ca_path", metavar="FILE", help="With --endpoint: PEM of the certificates to trust.")
@click.option("--token-file", "token_path", metavar="FILE", default="", help="With --endpoint: the token's file.")
@click.pass_context
def health(
    context: click.Context, config_path: str | None, endpoint: str | None, ca_path: str | None, token_path: str
) -> int:
    """Exit status 0 if a coordinator is ready, 1 if not: a probe.

    With --config: the coordinator on this host that was started with the same file. With --endpoint: any.
    """
    if (config_path is None) == (endpoint is None):
        raise click.UsageError("Name either --config or --endpoint.", context)
    from sharegroup.health import ask, probe_of_config, probe_of_endpoint  # as above

    probe = probe_of_config(config_path) if config_path else probe_of_endpoint(endpoint or "", ca_path, token_path)
    found = ask(probe)
    click.echo(f"{'ready' if found.ready else 'not ready'}: pid {found.pid}, version {found.version or 'unknown'}")
    return 0 if found.ready else 1
