"""Ways out of what is around a program: brokers, coordinators and their tokens, files, folders, listeners, state."""

import contextlib
import os
import socket
import sqlite3

import trustme

from coordinator.admin.admin import Admin
from coordinator.client.on_demand import runtime_dir
from coordinator.config.properties_file import read_properties
from coordinator.config.resolved import CoordinatorConfig, ServerConfig
from coordinator.config.secret_files import read_token
from coordinator.kafka.cluster_metadata import cluster_metadata
from coordinator.protocol import errors
from coordinator.protocol.admin_messages import DeleteGroup
from coordinator.protocol.messages import DescribeGroup, Done, Heartbeat, JoinGroup
from coordinator.service.coordinator import _metrics_of
from coordinator.service.requests.requests import Requests
from coordinator.service.server.listener import TlsRequired, listener_of
from coordinator.service.stores.sqlite_store import SqliteStore
from tests.support.doors import ADMIN, BOUND, MEMBER, Socket
from tests.support.ports import free_ports
from tests.support.standalone import Certificates
from tests.support.store_writes import append
from tests.ways_out.way import way_out

TOKEN = "a-token-of-enough-characters"
LISTENER = "share.coordinator.listener"
BEAT = Heartbeat(group_id="billing-eu", member_id="m1", member_epoch=1)


# --- brokers


@way_out(errors.BrokerNotReachable, "Check kafka.bootstrap.servers")
def a_port_where_nobody_listens(scene):
    (port,) = free_ports(1)
    with scene.refused():
        cluster_metadata(f"127.0.0.1:{port}", {}, timeout_s=0.3)
    assert cluster_metadata(scene.place.bootstrap, {}).brokers


@way_out(errors.BrokerHostUnknown, "Correct kafka.bootstrap.servers")
def a_mistyped_host(scene):
    with scene.refused():
        cluster_metadata("nosuch.invalid:9092", {})
    assert cluster_metadata(scene.place.bootstrap, {}).brokers


@way_out(errors.BrokerSpeaksOtherwise, "Name the port of a broker's Kafka listener")
def a_port_that_answers_in_http(scene):
    with scene.refused():
        cluster_metadata(scene.answering(b"HTTP/1.1 400 Bad Request\r\n\r\n"), {})
    assert cluster_metadata(scene.place.bootstrap, {}).brokers


@way_out(errors.BrokerClosesConnection, "Set the listener's protocol, or name the port", "This client speaks SSL")
def a_client_that_speaks_tls_to_plain_text(scene):
    with scene.refused():
        cluster_metadata(scene.answering(b""), {"security.protocol": "SSL"})
    assert cluster_metadata(scene.place.bootstrap, {"security.protocol": "PLAINTEXT"}).brokers


# --- coordinators


def door(scene, handle=lambda request: Done(), **limits):
    """A coordinator's door for programs."""
    opened = Socket(Requests(limits=ServerConfig.parse(limits)).begin(handle))
    scene.ending.callback(opened.close)
    return opened


def who_asks(scene, port, token=MEMBER):
    """What the coordinator at this port knows of the token."""
    with Admin({"share.coordinator.endpoint": f"127.0.0.1:{port}"}, timeout_ms=200, token=token) as admin:
        return admin.who_am_i()


@way_out(errors.CoordinatorUnreachable, "Check share.coordinator.endpoint and that a coordinator runs there")
def an_endpoint_without_a_coordinator(scene):
    (port,) = free_ports(1)
    with scene.refused():
        who_asks(scene, port)
    assert who_asks(scene, door(scene).server.port).rights


@way_out(errors.NotAuthorized, "Put the coordinator's token into the file")
def a_wrong_token(scene):
    port = door(scene).server.port
    with scene.refused():
        who_asks(scene, port, "guessed-token-0123456789")
    assert who_asks(scene, port).rights


@way_out(errors.NotAllowed, "Set share.coordinator.token.file to a file with such a token")
def a_token_without_the_right(scene):
    opened = door(scene)
    delete = DeleteGroup(group_id="billing", execute=True)
    with scene.refused():
        opened.ask(delete, MEMBER)
    assert opened.ask(delete, ADMIN)


@way_out(errors.GroupNotAllowed, "Use such a group id", "allows only billing-.*")
def a_group_that_the_token_may_not_use(scene):
    opened = door(scene)
    with scene.refused():
        opened.ask(DescribeGroup(group_id="payroll"), BOUND)
    assert opened.ask(DescribeGroup(group_id="billing-eu"), BOUND)


@way_out(errors.TopicNotAllowed, "Name a topic that it allows", "allows only orders-.*")
def a_topic_that_the_token_may_not_read(scene):
    opened = door(scene)
    join = {"group_id": "billing-eu", "member_id": "m", "process_id": "p"}
    with scene.refused():
        opened.ask(JoinGroup(**join, topics=("salaries",)), BOUND)
    assert opened.ask(JoinGroup(**join, topics=("orders-eu",)), BOUND)


@way_out(errors.RequestTooLarge, "send less at once, or raise the coordinator's socket.request.max.bytes")
def a_request_of_too_many_bytes(scene):
    name = "socket.request.max.bytes"
    body = JoinGroup(group_id="billing", member_id="m", process_id="p", topics=tuple(str(n) for n in range(20_000)))
    with scene.refused():
        door(scene, **{name: str(1 << 16)}).ask(body)
    assert door(scene, **{name: str(1 << 20)}).ask(body) == Done()


@way_out(errors.CoordinatorOverloaded, "Send the request again")
def too_many_requests_at_once(scene):
    def handle(request):
        if len(asked) < 2:
            asked.append(request)
            with contextlib.suppress(AssertionError), scene.refused():
                opened.ask(look)
        return Done()

    asked, look = [], DescribeGroup(group_id="billing")
    opened = door(scene, handle, **{"queued.max.requests": "1"})
    opened.ask(look)
    assert opened.ask(look) == Done()


@way_out(errors.CoordinatorVersionMismatch, "Run the same version of sharegroup on both sides")
def a_program_of_another_version(scene):
    opened = door(scene)
    with scene.refused():
        opened.send("Heartbeat", b"", protocol="1")
    assert opened.ask(BEAT) == Done()


@way_out(
    errors.TokenMissing,
    "set share.coordinator.token.file to a file that holds it, or set SHAREGROUP_COORDINATOR_TOKEN",
)
def an_endpoint_without_a_token(scene):
    with scene.refused():
        read_token("", {})
    assert read_token(scene.place.file("token", TOKEN), {}) == read_token("", {"SHAREGROUP_COORDINATOR_TOKEN": TOKEN})


@way_out(errors.InvalidToken, "it has less than 16 characters")
def a_token_that_can_be_guessed(scene):
    with scene.refused():
        read_token("", {"SHAREGROUP_COORDINATOR_TOKEN": "guess"})
    assert read_token("", {"SHAREGROUP_COORDINATOR_TOKEN": TOKEN})


# --- files and folders


@way_out(errors.UnsafeFile, "chmod 600")
def a_token_that_others_may_read(scene):
    path = scene.place.file("token", TOKEN, mode=0o644)
    with scene.refused():
        read_token(path, {})
    os.chmod(path, 0o600)
    assert read_token(path, {}) == TOKEN


@way_out(errors.UnusableFile, "No such file or directory")
def a_certificate_that_is_missing(scene):
    path = scene.place.folder / "ca.pem"
    tls = {"kafka.security.protocol": "SSL", "kafka.ssl.ca.location": str(path)}
    with scene.refused():
        scene.place.sink(tls)
    path.write_bytes(trustme.CA().cert_pem.bytes())
    scene.place.sink(tls)


@way_out(errors.UnsafeDirectory, "Name another directory in SHAREGROUP_RUNTIME_DIR")
def a_runtime_folder_that_is_a_file(scene):
    scene.patch.setenv("SHAREGROUP_RUNTIME_DIR", scene.place.file("file"))
    with scene.refused():
        runtime_dir()
    scene.patch.setenv("SHAREGROUP_RUNTIME_DIR", str(scene.place.folder / "runtime"))
    assert runtime_dir().is_dir()


@way_out(errors.InvalidPropertiesFile, "can't be used: invalid escape")
def a_properties_file_with_a_wrong_escape(scene):
    with scene.refused():
        read_properties(scene.place.file("client.properties", "client.id=\\u00zz"))
    assert read_properties(scene.place.file("client.properties", "client.id=\\u0041")) == {"client.id": "A"}


# --- where a coordinator listens


def listens(**configs):
    """A standalone coordinator's listener, with these configs."""
    return listener_of(ServerConfig.parse(configs))


@way_out(TlsRequired, "set", "loopback")
def a_listener_for_other_hosts_without_tls(scene):
    with scene.refused():
        listens(**{LISTENER: "0.0.0.0:0"})
    certificates = Certificates(scene.place.folder)
    everywhere = {LISTENER: "0.0.0.0:0", "share.coordinator.advertised.listener": "c1.example:9394"}
    assert listens(**everywhere, **certificates.configs).certificate
    assert listens(**{LISTENER: "127.0.0.1:0"})


@way_out(errors.MissingConfig, "clients need the one by which they reach it")
def a_listener_on_all_addresses(scene):
    configs = {LISTENER: "0.0.0.0:0", **Certificates(scene.place.folder).configs}
    with scene.refused():
        listens(**configs)
    assert listens(**configs, **{"share.coordinator.advertised.listener": "c1.example:9394"}).advertised


@way_out(errors.ListenerNotAvailable, "Let share.coordinator.listener name another address or port")
def a_listener_whose_port_is_taken(scene):
    with socket.create_server(("127.0.0.1", 0)) as taken, scene.refused():
        listens(**{LISTENER: f"127.0.0.1:{taken.getsockname()[1]}"})
    assert listens(**{LISTENER: "127.0.0.1:0"})


@way_out(errors.MetricsNotAvailable, "Name another port, or 0 for no metrics")
def metrics_on_a_port_that_is_taken(scene):
    def measured(port):
        return _metrics_of(CoordinatorConfig.parse({"share.coordinator.metrics.port": str(port)}), is_optional=False)

    with socket.create_server(("127.0.0.1", 0)) as taken, scene.refused():
        measured(taken.getsockname()[1])
    assert measured(0) is None
    (port,) = free_ports(1)
    with contextlib.closing(measured(port)) as metrics:
        assert metrics.port == port


# --- the state in a file


@way_out(errors.StateStoreInUse, "stop the other one, or let share.state.store name another file")
def a_file_that_another_coordinator_owns(scene):
    path = scene.place.folder / "groups.db"
    with contextlib.closing(SqliteStore(path)), scene.refused():
        SqliteStore(path)
    SqliteStore(path).close()
    with contextlib.closing(SqliteStore(path)), contextlib.closing(SqliteStore(scene.place.folder / "other.db")):
        pass


def of_another_file(scene, path):
    """The store of ``path`` is refused, and one in another file is not."""
    with scene.refused():
        SqliteStore(path)
    SqliteStore(scene.place.folder / "other.db").close()


def with_schema(scene, schema):
    """A store that another version has written."""
    path = scene.place.folder / "groups.db"
    SqliteStore(path).close()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA user_version = {schema}")
    return path


@way_out(errors.StateStoreTooNew, "let share.state.store name another file")
def a_file_of_a_newer_version(scene):
    of_another_file(scene, with_schema(scene, 99))


@way_out(errors.StateStoreTooOld, "let share.state.store name another file")
def a_file_of_an_older_version(scene):
    of_another_file(scene, with_schema(scene, 1))


@way_out(errors.StateStoreUnreadable, "or let share.state.store name another file")
def a_file_that_is_no_store(scene):
    path = scene.place.folder / "groups.db"
    path.write_bytes(b"no database, but long enough to be one" * 100)
    of_another_file(scene, path)


@way_out(errors.StateFileGone, "Stop the coordinator, put the file back together with its -wal file")
def a_file_that_was_moved_away(scene):
    path, backup = scene.place.folder / "groups.db", scene.place.folder / "backup"
    backup.mkdir()
    store = SqliteStore(path)
    append(store, {"billing": [b"a"]})
    files = [each for each in scene.place.folder.glob("groups.db*") if each.is_file()]
    for each in files:
        os.replace(each, backup / each.name)
    with scene.refused():
        list(store.load("billing"))
    store.close()
    for each in scene.place.folder.glob("groups.db*"):
        each.unlink()
    for each in backup.iterdir():
        os.replace(each, scene.place.folder / each.name)
    with contextlib.closing(SqliteStore(path)) as again:
        assert [record.data for record in again.load("billing")] == [b"a"]
