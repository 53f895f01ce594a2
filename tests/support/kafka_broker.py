"""A real Kafka broker for the tests: KRaft in one process, from the jars that tools/bootstrap.py fetched.

The rule: it lives in a folder of its own, on ports that the system chose, and is gone when its owner is gone.
"""

import atexit
import base64
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from tests.support.broker_versions import broker_config, chosen_version, jars_of, write_logging
from tests.support.java_options import BROKER_OPTIONS
from tests.support.ports import free_ports
from tests.support.stopped_process import stop_process
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import wait_until

START_TIMEOUT_S = 300
REQUEST_TIMEOUT_S = 60
"""A request fails after this many seconds: a busy machine takes far less. Where sixty processes computed, a start took
more than three minutes."""

LOG_CHARACTERS = 20_000
"""If a broker does not start, the error has the last characters of its log, this number at most, and its threads."""

LINGER_MS = 10_000
"""A producer waits this many milliseconds for further records: a few become one batch, however slow it is. `flush` does
not wait."""

Value = bytes | str | None


class BrokerError(RuntimeError):
    """The broker, or one of Kafka's tools, could not do what the test asked."""


class KafkaBroker:
    """One broker. `bootstrap` is its address; `proxied_bootstrap` the one through `proxy`, which a test can cut."""

    def __init__(
        self,
        *,
        heap: str = "1g",
        joins: "KafkaBroker | None" = None,
        node: int = 2,
        version: str = "",
        listeners: Mapping[str, str] = MappingProxyType({}),
        java_options: Sequence[str] = BROKER_OPTIONS,
        **config: str,
    ) -> None:
        """Start it and wait until it answers; `config` is broker configuration, with _ for the dots. `joins`: as
        another broker, number `node`, of that one's cluster, whose controller it has; the one it joins ends after it.
        `version`: of Kafka, if not that of the run. `listeners`: further ones, with their security protocols; each has
        an `address`. `java_options`: none where the broker's speed is measured.
        """
        self.version = version or chosen_version()
        self._jars = jars_of(self.version)
        require_jars(self._jars, self.version)
        self.directory = Path(tempfile.mkdtemp(prefix="sharegroup-kafka-"))
        self._port, self._controller_port, self._proxied_port = free_ports(3)
        self._protocols = dict(listeners)
        self._ports = dict(zip(listeners, free_ports(len(listeners)), strict=True))
        self.node_id = 1 if joins is None else node
        self.cluster_id = new_cluster_id() if joins is None else joins.cluster_id
        if joins is not None:
            self._controller_port = joins._controller_port
        self.proxy = TcpProxy(("127.0.0.1", self._proxied_port))
        self._config = config
        self._heap = heap
        self._java_options = java_options
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: AdminClient | None = None
        self._guard = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("process_guard.py")), str(self.directory)],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        atexit.register(self.stop)
        try:
            self._format_storage()
            self.start()
        except BaseException:
            self.stop()
            raise

    def __repr__(self) -> str:
        return f"<KafkaBroker {self.bootstrap} pid={self.pid}>"

    def __enter__(self) -> "KafkaBroker":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- its life ------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """The broker's address, without the proxy."""
        return f"127.0.0.1:{self._port}"

    @property
    def proxied_bootstrap(self) -> str:
        """The address through `proxy`: all that a client of it reads and writes goes through the proxy too."""
        return f"127.0.0.1:{self.proxy.port}"

    @property
    def records_proxied_bootstrap(self) -> str:
        """Metadata comes directly, records and offsets through the proxy: while it is cut, clients know of the cluster
        and can read nothing."""
        return f"127.0.0.1:{self._proxied_port}"

    def address(self, listener: str) -> str:
        """The address of one of the further `listeners`."""
        return f"127.0.0.1:{self._ports[listener]}"

    @property
    def pid(self) -> int | None:
        """The broker's process, while there is one."""
        return self._process.pid if self._process else None

    def has_ended(self) -> bool:
        """Whether the process that was started last has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    @property
    def admin(self) -> AdminClient:
        """An admin client, kept."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    def start(self) -> None:
        """Start the broker where it stopped: same folder, same ports. Returns when it answers."""
        if self._process is not None:
            return
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._java(*self._java_options, f"-Xmx{self._heap}", "kafka.Kafka", str(self.properties_path)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._tell_guard(self._process.pid)
        try:
            wait_until(self._is_up, timeout_s=START_TIMEOUT_S, what=f"{self!r} answers")
        except AssertionError as late:
            raise BrokerError(f"{late}:\n{self._log_with_threads()}") from late

    def shut_down(self) -> None:
        """SIGTERM: an orderly end; its data stays for `start()`."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL; its data stays for `start()`."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Ends the broker in order, and starts it again on the same ports."""
        self.shut_down()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay, nothing answers from here on."""
        stop_process(self._running().pid)

    def resume(self) -> None:
        """Sends SIGCONT to the broker."""
        self._running().send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """The end: process, proxy and folder are gone."""
        atexit.unregister(self.stop)
        self._admin = None
        self._end(signal.SIGKILL)
        self.proxy.close()
        if self._guard.stdin:
            self._guard.stdin.close()
        self._guard.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    # -- topics --------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        *,
        node: int | None = None,
        nodes: Sequence[int] = (),
        replicas: Sequence[int] = (),
        **configs: object,
    ) -> str:
        """Create a topic and return its name; `configs` are topic configs with _ for the dots. `node`: the one broker
        that has all of it; `nodes`: for each partition the one that has it; `replicas`: the brokers that each
        partition is on, the preferred leader first."""
        name = name or f"topic-{uuid.uuid4().hex[:12]}"
        config = {key.replace("_", "."): str(value) for key, value in configs.items()}
        nodes = nodes or ([] if node is None else [node] * partitions)
        partitions = len(nodes) or partitions
        placed = {"replica_assignment": [[each] for each in nodes]} if nodes else {"replication_factor": 1}
        if replicas:
            placed = {"replica_assignment": [list(replicas)] * partitions}
        new = NewTopic(name, num_partitions=partitions, config=config, **placed)
        wait_until(lambda: self._created(new), what=f"a broker takes {name}")
        self._wait_for_leaders(name, partitions)
        return name

    def _answer(self, ask: Callable[[], Any], done: int | None = None) -> Any:
        """Returns the broker's answer. Sends the request again where librdkafka drops it because the broker stood
        still. If ``done`` fails then, the broker had the dropped request."""
        dropped = False
        while True:
            try:
                return ask().result(REQUEST_TIMEOUT_S)
            except KafkaException as raised:
                code = raised.args[0].code()
                if dropped and code == done:
                    return None
                if code != KafkaError._DESTROY_BROKER:
                    raise
                dropped = True

    def _created(self, new: NewTopic) -> bool:
        """False while the controller holds the broker for dead: it stood still, and has just gone on."""
        try:
            self._answer(lambda: self.admin.create_topics([new])[new.topic], KafkaError.TOPIC_ALREADY_EXISTS)
        except KafkaException as raised:
            if raised.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
                raise
            return False
        return True

    def delete_topic(self, name: str) -> None:
        """Deletes a topic. Returns when no metadata has its id; another topic of that name may exist then."""
        topic_id = self.topic_id(name)
        self._answer(lambda: self.admin.delete_topics([name])[name], KafkaError.UNKNOWN_TOPIC_OR_PART)
        wait_until(lambda: not self._has(name, topic_id), what=f"{name} is deleted")

    def _has(self, name: str, topic_id: str) -> bool:
        try:
            return self.topic_id(name) == topic_id
        except KafkaException as raised:
            if raised.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return False

    def recreate_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        """Delete a topic and create it as `create_topic` does. A topic that a coordinator creates in between because it
        misses the one before is deleted as well."""
        while True:
            self.delete_topic(name)
            try:
                self.create_topic(name, partitions, **configs)
            except KafkaException as raised:
                if raised.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            else:
                return

    def add_partitions(self, name: str, total: int) -> None:
        """Let the topic have `total` partitions."""
        self.admin.create_partitions([NewPartitions(name, total)])[name].result(REQUEST_TIMEOUT_S)
        self._wait_for_leaders(name, total)

    def delete_records(self, name: str, before_offset: int, partition: int = 0) -> None:
        """Move the partition's log start to `before_offset`."""
        at = TopicPartition(name, partition, before_offset)
        self._answer(lambda: self.admin.delete_records([at])[at])

    def configure_group(self, group_id: str, **configs: object) -> None:
        """Sets configs of a native share group, with _ for the dots. Returns when the broker describes the group so: it
        takes up a change a moment after the controller has confirmed it."""
        wanted = {key.replace("_", "."): str(value) for key, value in configs.items()}
        entries = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in wanted.items()]
        group = ConfigResource(ConfigResource.Type.GROUP, group_id, incremental_configs=entries)
        self._answer(lambda: self.admin.incremental_alter_configs([group])[group])

        def is_known() -> bool:
            found = self._answer(lambda: self.admin.describe_configs([group])[group])
            return all(key in found and found[key].value == value for key, value in wanted.items())

        wait_until(is_known, what=f"the broker knows the configs of {group_id}")

    def topic_id(self, name: str) -> str:
        """The id that a topic gets when it is created; one created anew under the same name has another."""
        described = self._answer(lambda: self.admin.describe_topics(TopicCollection([name]))[name])
        # confluent_kafka's Uuid does not compare, and is not written as Kafka writes it
        return str(described.topic_id).replace("+", "-").replace("/", "_")

    # -- records -------------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        values: Iterable[Value],
        *,
        keys: Sequence[Value] | None = None,
        partition: int = -1,
        headers: list[tuple[str, bytes]] | None = None,
        **config: object,
    ) -> None:
        """Write records and return when the broker has them all; `config` is the producer's, with _ for the dots."""
        producer = Producer(self._client_config(config))
        self._send(producer, topic, values, keys, partition, headers)

    def produce_transaction(
        self, topic: str, values: Iterable[Value], *, commit: bool = True, partition: int = -1
    ) -> None:
        """Write records in one transaction, and commit or abort it; it leaves a marker in each partition it wrote."""
        producer = self.open_transaction(topic, values, partition=partition)
        if commit:
            producer.commit_transaction(REQUEST_TIMEOUT_S)
        else:
            producer.abort_transaction(REQUEST_TIMEOUT_S)
        # The markers are written soon after that was answered: until then the last stable offset lies before the end.
        levels = (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        wait_until(lambda: self._ends(topic, levels[0]) == self._ends(topic, levels[1]), what="the markers are there")

    def open_transaction(
        self, topic: str, values: Iterable[Value], *, partition: int = -1, keys: Sequence[Value] | None = None
    ) -> Producer:
        """Write records in a transaction and leave it open: the producer returned may commit or abort it."""
        producer = Producer(self._client_config({"transactional_id": f"test-{uuid.uuid4().hex}"}))
        producer.init_transactions(REQUEST_TIMEOUT_S)
        producer.begin_transaction()
        self._send(producer, topic, values, keys, partition, None)
        return producer

    def _ends(self, topic: str, level: IsolationLevel) -> list[int]:
        partitions = self.admin.list_topics(topic, REQUEST_TIMEOUT_S).topics[topic].partitions
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in sorted(partitions)}
        return [answer.result().offset for answer in self.admin.list_offsets(asked, isolation_level=level).values()]

    # -- Kafka's own tools ---------------------------------------------------------------------------------------

    def run_tool(self, java_class: str, *arguments: str, stdin: str = "", timeout_s: float = 300) -> str:
        """Run the main class of one of Kafka's command line tools; what it printed. BrokerError when it failed."""
        done = subprocess.run(
            self._java(*BROKER_OPTIONS, "-Xmx256m", java_class, *arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode != 0:
            raise BrokerError(f"{java_class} failed ({done.returncode}):\n{done.stdout}\n{done.stderr}")
        return done.stdout

    # -- inside --------------------------------------------------------------------------------------------------

    @property
    def properties_path(self) -> Path:
        """The broker's configuration file, read when the broker starts."""
        return self.directory / "server.properties"

    @property
    def _log_path(self) -> Path:
        return self.directory / "server.log"

    def _java(self, *arguments: str) -> list[str]:
        home = os.environ.get("JAVA_HOME")
        java = str(Path(home) / "bin" / "java") if home else "java"
        return [java, self._logging, "-cp", f"{self._jars}/*", *arguments]

    def _format_storage(self) -> None:
        self._logging = write_logging(self.version, self.directory)
        listeners = {
            "PLAINTEXT": (self._port, self._port),
            "PROXIED": (self._proxied_port, self.proxy.port),
            **{name: (port, port) for name, port in self._ports.items()},
        }
        protocols = {"PLAINTEXT": "PLAINTEXT", "PROXIED": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **self._protocols}
        is_first = self.node_id == 1
        config = {
            **broker_config(self.version),
            "node.id": str(self.node_id),
            "process.roles": "broker,controller" if is_first else "broker",
            "log.dirs": str(self.directory / "data"),
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listeners": ",".join(
                [f"{name}://127.0.0.1:{bound}" for name, (bound, _) in listeners.items()]
                + [f"CONTROLLER://127.0.0.1:{self._controller_port}"] * is_first
            ),
            "advertised.listeners": ",".join(f"{name}://127.0.0.1:{said}" for name, (_, said) in listeners.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            **{key.replace("_", "."): value for key, value in self._config.items()},
        }
        self.properties_path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        self.run_tool("kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(self.properties_path))

    def _is_up(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise BrokerError(f"the broker did not start:\n{self._log_path.read_text(errors='replace')[-3000:]}")
        try:
            # A broker listens once the controller lets it serve; the others may list one that was killed just now.
            socket.create_connection(("127.0.0.1", self._port), 1).close()
            return self.node_id in self.admin.list_topics(timeout=1).brokers
        except (OSError, KafkaException):
            return False

    def _log_with_threads(self) -> str:
        """The end of the log, and what each thread of the broker does, which it writes into its log."""
        self._running().send_signal(signal.SIGQUIT)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: "JNI global refs" in self._log_path.read_text(errors="replace"), what="a thread dump")
        log, _, threads = self._log_path.read_text(errors="replace").partition("Full thread dump")
        return f"{log[-LOG_CHARACTERS:]}\n--- threads{threads}"

    def _end(self, sig: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sig)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._tell_guard(0)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise BrokerError("the broker is not running")
        return self._process

    def _tell_guard(self, pid: int) -> None:
        if self._guard.stdin:
            self._guard.stdin.write(f"{pid}\n")
            self._guard.stdin.flush()

    def _wait_for_leaders(self, name: str, partitions: int) -> None:
        def all_led() -> bool:
            found = self.admin.list_topics(name, timeout=REQUEST_TIMEOUT_S).topics[name].partitions
            return len(found) == partitions and all(p.leader >= 0 for p in found.values())

        wait_until(all_led, what=f"{name} has {partitions} partitions with leaders")

    def _client_config(self, config: dict[str, object]) -> dict[str, object]:
        given = {key.replace("_", "."): value for key, value in config.items()}
        return {"bootstrap.servers": self.bootstrap, "linger.ms": LINGER_MS, "log_level": 0, **given}

    def _send(
        self,
        producer: Producer,
        topic: str,
        values: Iterable[Value],
        keys: Sequence[Value] | None,
        partition: int,
        headers: list[tuple[str, bytes]] | None,
    ) -> None:
        failed: list[object] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        for index, value in enumerate(values):
            key = keys[index] if keys else None
            while True:
                try:
                    producer.produce(topic, value, key, partition, on_delivery=delivered, headers=headers)
                    break
                except BufferError:
                    producer.poll(0.1)
        unsent = producer.flush(REQUEST_TIMEOUT_S)
        if failed or unsent:
            raise BrokerError(f"{len(failed) + unsent} records were not written to {topic}: {failed[:3]}")


def new_cluster_id() -> str:
    """A UUID as Kafka writes them: 22 characters; none that begins like an option."""
    return "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


def require_jars(jars: Path, version: str) -> None:
    """A test without its broker fails and prints what to do; it is not skipped."""
    if not (jars / ".complete").exists():
        advice = f"`python3 tools/bootstrap.py --kafka {version}`, `make test-all` or `make soak`"
        raise BrokerError(f"the jars of broker {version} are not there: run {advice}")
