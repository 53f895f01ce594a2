"""`sharegroup check` without a broker: its files, and mistakes that are known before a broker is asked."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from pathlib import Path

import pytest

from coordinator.kafka import cluster_metadata
from sharegroup.__main__ import run
from sharegroup.check.options import read_options

SOURCE = {"kafka.bootstrap.servers": "localhost:1", "kafka.group.id": "billing", "subscribe": "orders"}


@pytest.fixture
def file(tmp_path: Path):
    """Writes options as properties or, with the ending json, as JSON."""

    def write(name: str, options: dict[str, object]) -> str:
        path = tmp_path / name
        lines = "".join(f"{key}={value}\n" for key, value in options.items())
        path.write_text(json.dumps(options) if name.endswith("json") else lines)
        return str(path)

    return write


def test_properties_and_json_are_the_same_options(file, monkeypatch):
    monkeypatch.setenv("PASSWORD", "hunter2")
    secret = {"kafka.sasl.password": "${env:PASSWORD}"}
    assert read_options(file("a.properties", {**SOURCE, **secret}))["kafka.sasl.password"] == "hunter2"
    typed = {"includeHeaders": True, "minPartitions": 4, "startingOffsets": {"orders": {"0": 5}}}
    assert read_options(file("a.json", {**SOURCE, **typed})) == {
        **SOURCE,
        "includeHeaders": "true",
        "minPartitions": "4",
        "startingOffsets": '{"orders": {"0": 5}}',
    }


def test_a_wrong_option_is_a_line_and_status_1(file, capsys):
    assert run(["check", "--options", file("a.properties", {**SOURCE, "maxOfsetsPerTrigger": 5})]) == 1
    told = capsys.readouterr().out
    assert told.startswith("wrong  source: UnknownOption: ")
    assert "maxOffsetsPerTrigger" in told
    assert [line[:12] for line in told.splitlines()] == ["wrong  sourc", "ok     host:"]


def test_a_token_endpoint_that_is_away_is_named_before_the_brokers(file, capsys):
    with closing(socket.create_server(("127.0.0.1", 0))) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    oauth = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.method": "oidc",
        "kafka.sasl.oauthbearer.client.id": "alice",
        "kafka.sasl.oauthbearer.client.secret": "hunter2",
        "kafka.sasl.oauthbearer.token.endpoint.url": f"http://{address}/token?key=hunter2",
    }
    assert run(["check", "--options", file("a.json", {**SOURCE, **oauth})]) == 1
    wrong = capsys.readouterr().out.splitlines()[1]
    assert wrong.startswith(f"wrong  source: TokenEndpointNotReachable: The token endpoint {address} ")
    assert "hunter2" not in wrong


def test_check_prints_json(file, capsys):
    source = file("source.json", {**SOURCE, "share.delivery.count.limit": 99})
    sink = file("sink.json", {**SOURCE, "kafka.group.id": "payments"})
    assert run(["check", "--options", source, "--sink-options", sink, "--json"]) == 1
    first, second, host = json.loads(capsys.readouterr().out)
    assert (host["side"], host["result"], host["error"]) == ("host", "ok", None)
    assert (first["side"], first["result"], first["error"]) == ("source", "wrong", "ConfigOutOfBounds")
    assert first["what"].startswith("share.delivery.count.limit=99")
    assert (second["side"], second["error"]) == ("sink", "RefusedOption")


def test_an_unreachable_broker_is_named_after_the_right_options(file, capsys, monkeypatch):
    monkeypatch.setattr(cluster_metadata, "BROKER_TIMEOUT_S", 1.0)
    with closing(socket.create_server(("127.0.0.1", 0))) as closed:
        address = f"localhost:{closed.getsockname()[1]}"
    assert run(["check", "--options", file("a.json", {**SOURCE, "kafka.bootstrap.servers": address})]) == 1
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first == "ok     source: 3 option(s) are known, and their values are in bounds; share group billing"
    assert second.startswith("wrong  source: BrokerNotReachable: ")
    assert address in second
