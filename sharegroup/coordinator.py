"""``sharegroup coordinator``: runs a standalone coordinator, and checks whether one is ready."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING

import click

from coordinator.config.secret_files import TOKEN_KEY, make_token
from coordinator.protocol.errors import ShareGroupError
from coordinator.service.process.log_format import JSON, TEXT, log_lines
from sharegroup.admin_access import print_json
from sharegroup.cluster_options import JSON_OPTION

if TYPE_CHECKING:
    from coordinator.service.standalone_config import Standalone

_log = logging.getLogger(__name__)

_CONFIG = click.option(
    "--config",
    "config_path",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="A Java properties file (--print-config prints one); ${env:NAME} stands for an environment variable.",
)


@click.group(invoke_without_command=True)
@_CONFIG
@click.option("--print-config", is_flag=True, help="Print a file with all keys, their meanings and defaults, and end.")
@click.option(
    "--make-token",
    "token_path",
    metavar="FILE",
    help="Write a new token to FILE, which must not exist and which only you can read, and end.",
)
@click.option(
    "--log-format",
    type=click.Choice([TEXT, JSON]),
    default=TEXT,
    show_default=True,
    help="The format of the log, one line for each event, on standard error.",
)
@click.pass_context
def coordinator(
    context: click.Context, config_path: str | None, print_config: bool, token_path: str | None, log_format: str
) -> None:
    """Run a standalone coordinator until SIGTERM or SIGINT.

    Spark queries name the coordinator in share.coordinator.endpoint. The command reads its token from the file that
    share.coordinator.token.file names, or from the environment variable SHAREGROUP_COORDINATOR_TOKEN.

    \b
    Examples:
      sharegroup coordinator --print-config > coordinator.properties
      sharegroup coordinator --make-token token
      sharegroup coordinator --config coordinator.properties --log-format json"""
    if context.invoked_subcommand is not None:
        if config_path is not None:
            command = f"{context.command_path} {context.invoked_subcommand}"
            raise click.UsageError(f"--config stands after {command}: {command} --config {config_path}", context)
        return
    if print_config:
        from coordinator.config.properties_text import coordinator_properties  # only now, as below

        click.echo(coordinator_properties(), nl=False)
        return
    if token_path is not None:
        make_token("--make-token", token_path)
        click.echo(f"A new token is in {token_path}: name the file in {TOKEN_KEY}, on both sides.")
        return
    if config_path is None:
        raise click.UsageError("Missing option '--config'.", context)
    from coordinator.service.standalone import serve  # importing takes a second, which --help does not need
    from coordinator.service.standalone_config import read_config

    try:
        with log_lines(sys.stderr, log_format):  # warnings about the file are lines of the log
            standalone = read_config(config_path)
        serve(standalone, log_format, _page)
    except ShareGroupError as error:
        if log_format != JSON:
            raise
        with log_lines(sys.stderr, JSON):
            _log.error("the coordinator failed: %s: %s", type(error).__name__, error)
        context.exit(1)


def _page(standalone: Standalone, address: str) -> contextlib.AbstractContextManager[object]:
    if not standalone.server.share_coordinator_web_port:
        return contextlib.nullcontext()
    from sharegroup.web.coordinator_page import page_of  # as above

    return page_of(standalone, address)


@coordinator.command(short_help="Check whether a coordinator is ready.")
@_CONFIG
@click.option("--endpoint", metavar="HOST:PORT", help="Check the coordinator at this address.")
@click.option("--ca", "ca_path", metavar="FILE", help="With --endpoint: a PEM file with the certificates to trust.")
@click.option(
    "--token-file", "token_path", metavar="FILE", default="", help="With --endpoint: the file with the token."
)
@JSON_OPTION
@click.pass_context
def health(
    context: click.Context,
    config_path: str | None,
    endpoint: str | None,
    ca_path: str | None,
    token_path: str,
    as_json: bool,
) -> int:
    """Check whether a coordinator is ready: exit status 0 if it is, 1 if not.

    With --config: check the coordinator on this host that was started with the same file. With --endpoint: check any
    coordinator.

    \b
    Examples:
      sharegroup coordinator health --config coordinator.properties
      sharegroup coordinator health --endpoint host:9394 \\
          --token-file token --ca ca.pem --json"""
    if (config_path is None) == (endpoint is None):
        raise click.UsageError("Name either --config FILE or --endpoint HOST:PORT.", context)
    from sharegroup.health import ask, probe_of_config, probe_of_endpoint  # as above

    probe = probe_of_config(config_path) if config_path else probe_of_endpoint(endpoint or "", ca_path, token_path)
    answer = ask(probe)
    if as_json:
        print_json({"ready": answer.ready, "pid": answer.pid, "version": answer.version})
    else:
        state = "ready" if answer.ready else "not ready"
        click.echo(f"{state}: pid {answer.pid}, version {answer.version or 'unknown'}")
    return 0 if answer.ready else 1
