"""``sharegroup coordinator``: runs a standalone coordinator, and checks whether one is ready."""

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
    help="A Java properties file; conf/coordinator.properties has all keys. ${env:NAME} stands for the value of the "
    "environment variable NAME.",
)


@click.group(invoke_without_command=True)
@_CONFIG
@click.option(
    "--log-format",
    type=click.Choice([TEXT, JSON]),
    default=TEXT,
    show_default=True,
    help="The format of the log, one line for each event, on standard error.",
)
@click.pass_context
def coordinator(context: click.Context, config_path: str | None, log_format: str) -> None:
    """Run a standalone coordinator until SIGTERM or SIGINT.

    Spark queries name the coordinator in share.coordinator.endpoint. It reads its token from the file that
    share.coordinator.token.file names, or from the environment variable SHAREGROUP_COORDINATOR_TOKEN.
    """
    if context.invoked_subcommand is not None:
        return
    if config_path is None:
        raise click.UsageError("Missing option '--config'.", context)
    from coordinator.service.standalone import serve  # importing takes a second, which --help does not need
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
@click.option("--endpoint", metavar="HOST:PORT", help="Check the coordinator at this address.")
@click.option("--ca", "ca_path", metavar="FILE", help="With --endpoint: a PEM file with the certificates to trust.")
@click.option(
    "--token-file", "token_path", metavar="FILE", default="", help="With --endpoint: the file with the token."
)
@click.pass_context
def health(
    context: click.Context, config_path: str | None, endpoint: str | None, ca_path: str | None, token_path: str
) -> int:
    """Check whether a coordinator is ready: exit status 0 if it is, 1 if not.

    With --config: check the coordinator on this host that was started with the same file. With --endpoint: check any
    coordinator.
    """
    if (config_path is None) == (endpoint is None):
        raise click.UsageError("Name either --config or --endpoint.", context)
    from sharegroup.health import ask, probe_of_config, probe_of_endpoint  # as above

    probe = probe_of_config(config_path) if config_path else probe_of_endpoint(endpoint or "", ca_path, token_path)
    answer = ask(probe)
    click.echo(f"{'ready' if answer.ready else 'not ready'}: pid {answer.pid}, version {answer.version or 'unknown'}")
    return 0 if answer.ready else 1
