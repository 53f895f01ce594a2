"""The command line as a person meets it: help, mistakes in one line, and what a properties file may say."""

from __future__ import annotations

import contextlib
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.protocol.errors import (
    ConfigConflict,
    ConfigOutOfBounds,
    InvalidPropertiesFile,
    InvalidToken,
    ListenerNotAvailable,
    MissingConfig,
    ShareGroupError,
    TlsRequired,
    TokenMissing,
    UnknownConfig,
    UnsafeFile,
    UnusableFile,
)
from coordinator.protocol.secret_files import TOKEN_VARIABLE, read_token
from coordinator.service.standalone_config import read_config
from sharegroup.__main__ import run
from tests.support.command_line import mistake
from tests.support.standalone import CERTIFICATE, KEY, TOKEN, Certificates, write_properties, write_secret

LISTENER = "share.coordinator.listener"
ADVERTISED = "share.coordinator.advertised.listener"
TOKEN_FILE = "share.coordinator.token.file"
LEAST = {"bootstrap.servers": "broker:9092", "share.state.store": "sqlite:state.db", LISTENER: "127.0.0.1:0"}


@pytest.fixture
def config(tmp_path):
    """What a file says that holds the least that is needed, and more."""
    path = tmp_path / "coordinator.properties"

    def read(text="", environ=None, **configs):
        write_properties(path, {**LEAST, **configs})
        with path.open("a") as file:
            file.write(text)
        return read_config(str(path), environ or {})

    read.path = path
    return read


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


# --- what a person sees


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["coordinator", "--help"], ["coordinator", "health", "-h"]])
def test_help_says_how_it_is_used(arguments, capsys):
    assert run(arguments) == 0
    assert "Usage: sharegroup" in capsys.readouterr().out


def test_its_version_is_said(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("sharegroup, version ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["coordinatr"], "No such command 'coordinatr'"),
        (["coordinator"], "Missing option '--config'"),
        (["coordinator", "--config"], "requires an argument"),
        (
            ["coordinator", "--config", "none.properties"],
            "InvalidPropertiesFile: The configuration file none.properties",
        ),
        (["coordinator", "--config", "x", "--log-format", "xml"], "'xml' is not one of 'text', 'json'"),
        (["coordinator", "health"], "either --config or --endpoint"),
        (["coordinator", "health", "--config", "x", "--endpoint", "a:1"], "either --config or --endpoint"),
        (["coordinator", "health", "--endpoint", "nowhere"], "ConfigOutOfBounds: --endpoint=nowhere"),
        (["coordinator", "health", "--endpoint", "localhost:1"], "TokenMissing: "),
    ],
)
def test_a_mistake_is_one_line_and_status_1(arguments, says, capsys, monkeypatch, tmp_path):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    assert says in mistake(arguments, capsys)


def test_a_start_that_fails_is_a_line_of_json_where_the_log_is_and_leaves_the_logging_as_it_was(capsys):
    root = logging.getLogger()
    before = [*root.handlers], root.level
    assert run(["coordinator", "--config", "none.properties", "--log-format", "json"]) == 1
    assert json.loads(capsys.readouterr().err)["message"].startswith("failed: InvalidPropertiesFile: ")
    assert ([*root.handlers], root.level) == before


# --- the file


def test_a_file_is_read_as_java_reads_it(config):
    found = config(
        "! a comment\n"
        "  group.share.max.size : 7\n"
        "max.connections\\\n   =  12\n"
        "kafka.sasl.password=p\\u00e4ss=word\n"
        "kafka.sasl.username=${env:USER_OF_KAFKA}-1\n",
        {"USER_OF_KAFKA": "me"},
    )
    assert (found.server.group_share_max_size, found.server.max_connections) == (7, 12)
    assert found.settings.kafka_config == {"sasl.password": "päss=word", "sasl.username": "me-1"}
    assert "word" not in repr(found)


def test_the_state_is_in_kafka_unless_the_file_says_where(config):
    assert config().settings.state_store == "sqlite:state.db"
    write_properties(config.path, {"bootstrap.servers": "broker:9092"})
    assert read_config(str(config.path), {}).settings.state_store == "kafka"
    with pytest.raises(ShareGroupError, match=r"share\.state\.store=sqlite .*kafka or sqlite:PATH"):
        config(**{"share.state.store": "sqlite"})


@pytest.mark.parametrize(
    ("configs", "error", "says"),
    [
        ({"bootstrap.servers": ""}, MissingConfig, r"bootstrap\.servers is not set"),
        ({"share.coordinator.listner": "a:1"}, UnknownConfig, r"nearest known one is share\.coordinator\.listener"),
        ({"sasl.mechanism": "PLAIN"}, UnknownConfig, r"nearest known one is kafka\.sasl\.mechanism"),
        ({"kafka.bootstrap.servers": "a:1"}, UnknownConfig, r"nearest known one is bootstrap\.servers"),
        ({"share.session.timeout.ms": "45000"}, UnknownConfig, "standalone coordinator"),
        ({LISTENER: "here"}, ConfigOutOfBounds, "host:port"),
        ({LISTENER: "127.0.0.1:65536"}, ConfigOutOfBounds, "host:port"),
        ({ADVERTISED: "a:1,b:2"}, ConfigOutOfBounds, "host:port"),
        ({"queued.max.requests": "0"}, ConfigOutOfBounds, "between 1 and"),
        ({"share.coordinator.endpoint": "a:1"}, ConfigConflict, "own store"),
        ({"kafka.sasl.password": "${env:NOT_THERE}"}, InvalidPropertiesFile, "environment variable NOT_THERE"),
        ({"kafka.sasl.password": r"\u12"}, InvalidPropertiesFile, "invalid escape"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(config, configs, error, says):
    with pytest.raises(error, match=says):
        config(**configs)


def test_a_file_that_is_none_is_named(config, tmp_path):
    config()
    config.path.write_bytes(b"a=\xff")
    with pytest.raises(InvalidPropertiesFile, match="not UTF-8"):
        read_config(str(config.path))
    with pytest.raises(InvalidPropertiesFile, match="Is a directory"):
        read_config(str(tmp_path))


@given(st.text(max_size=200))
def test_any_text_is_a_file_or_is_refused_by_name(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("any") / "file"
    path.write_text(text, encoding="utf-8", errors="replace")
    with contextlib.suppress(ShareGroupError):
        read_config(str(path), {})


# --- the listener


@pytest.mark.parametrize("address", ["0.0.0.0:9394", "[::]:9394", "192.0.2.1:9394", "coordinator.example:9394"])
def test_without_tls_only_loopback_may_be_bound(config, address):
    with pytest.raises(TlsRequired, match=r"needs TLS: set .*loopback"):
        config(**{LISTENER: address}).listener()


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0", "127.0.0.2:0", "[::1]:0"])
def test_loopback_needs_no_tls(config, address):
    try:
        listener = config(**{LISTENER: address}).listener()
    except ListenerNotAvailable:  # a host without IPv6
        assert "::1" in address
    else:
        assert listener.location.startswith("grpc://")


def test_all_addresses_need_one_that_is_advertised(config, certificates):
    everywhere = {LISTENER: "0.0.0.0:0", **certificates.configs}
    with pytest.raises(MissingConfig, match=r"share\.coordinator\.advertised\.listener"):
        config(**everywhere).listener()
    assert config(**everywhere, **{ADVERTISED: "c1.example:9394"}).listener().advertised == "c1.example:9394"


def test_a_certificate_and_its_key_go_together(config, certificates, tmp_path):
    assert config(**certificates.configs).listener().location.startswith("grpc+tls://")
    for one in (CERTIFICATE, KEY):
        with pytest.raises(MissingConfig, match="TLS needs both"):
            config(**{one: certificates.configs[one]}).listener()
    other = Certificates(tmp_path)
    with pytest.raises(UnusableFile, match="MISMATCH"):
        config(**{**certificates.configs, KEY: str(other.key)}).listener()


@pytest.mark.parametrize("one", [CERTIFICATE, KEY])
def test_a_file_of_tls_that_is_missing_or_none_is_named(config, certificates, tmp_path, one):
    with pytest.raises(UnusableFile, match=rf"{one}=.*No such file"):
        config(**{**certificates.configs, one: str(tmp_path / "none")}).listener()
    junk = write_secret(tmp_path / "junk", "no PEM")
    with pytest.raises(UnusableFile, match=rf"{one}=.*none in PEM"):
        config(**{**certificates.configs, one: str(junk)}).listener()


def test_a_key_that_others_may_read_is_refused(config, certificates, tmp_path):
    key = write_secret(tmp_path / "key.pem", certificates.key.read_text(), mode=0o644)
    with pytest.raises(UnsafeFile, match="others may read it: chmod 600"):
        config(**{**certificates.configs, KEY: str(key)}).listener()


# --- the token


def test_the_token_comes_from_its_file_or_the_environment(config, tmp_path):
    path = write_secret(tmp_path / "token", f"  {TOKEN}\n")
    assert config(**{TOKEN_FILE: str(path)}).token() == TOKEN
    assert config(environ={TOKEN_VARIABLE: TOKEN}).token() == TOKEN
    with pytest.raises(TokenMissing):
        config().token()


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o602, 0o620])
def test_a_token_that_others_may_read_or_change_is_refused(config, tmp_path, mode):
    path = write_secret(tmp_path / "token", TOKEN, mode)
    with pytest.raises(UnsafeFile, match=r"chmod 600") as raised:
        config(**{TOKEN_FILE: str(path)}).token()
    assert TOKEN not in str(raised.value)
    path.chmod(0o440)  # as Kubernetes gives it to a pod
    assert config(**{TOKEN_FILE: str(path)}).token() == TOKEN


@pytest.mark.parametrize(
    "token", ["", "two words of the token", "short", "täglich-frisch-gebraut", "a-token\nof-two-lines"]
)
def test_a_token_that_is_none_is_refused_without_showing_it(tmp_path, token):
    path = write_secret(tmp_path / "token", token)
    with pytest.raises(InvalidToken) as raised:
        read_token(str(path))
    assert not token or token not in str(raised.value)
