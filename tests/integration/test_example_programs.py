"""Programs as they are written for confluent_kafka.ShareConsumer run when the name in their imports is changed."""

from __future__ import annotations

import ast
import subprocess
import sys

import confluent_kafka
import pytest
from confluent_kafka import Producer

from tests.support.imports import ROOT

ACCEPTS_BY_POLLING = """
import sys
from confluent_kafka import KafkaException, ShareConsumer

consumer = ShareConsumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "client.id": "reader"})
consumer.subscribe([sys.argv[3]])
seen = 0
try:
    while seen < 6:
        for message in consumer.poll(timeout=1.0):
            if message.error() is not None:
                raise KafkaException(message.error())
            print(message.topic(), message.value().decode(), message.delivery_count())
            seen += 1
    consumer.commit_sync()
finally:
    consumer.close()
"""

DECIDES_EACH_RECORD = """
import sys
from confluent_kafka import AcknowledgeType, ShareConsumer

config = {
    "bootstrap.servers": sys.argv[1],
    "group.id": sys.argv[2],
    "share.acknowledgement.mode": "explicit",
}
with ShareConsumer(config) as consumer:
    consumer.subscribe([sys.argv[3]])
    decided = set()
    while len(decided) < 6:
        for message in consumer.poll(1.0):
            value = message.value().decode()
            if value == "v1" and message.delivery_count() == 1:
                consumer.acknowledge(message, AcknowledgeType.RELEASE)
                continue
            kind = AcknowledgeType.REJECT if value == "v2" else AcknowledgeType.ACCEPT
            consumer.acknowledge(message, kind)
            decided.add(value)
            print(message.topic(), value, message.delivery_count())
        for partition, error in consumer.commit_sync(timeout=30).items():
            if error is not None:
                raise error
"""

HEARS_OF_ITS_COMMITS = """
import sys
from confluent_kafka import ShareConsumer

committed = 0

def on_commit(offsets, exception):
    global committed
    if exception is not None:
        print("failed", exception, file=sys.stderr)
    committed += sum(len(each) for each in offsets.values())

def on_error(error):
    print(error, file=sys.stderr)

config = {"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "error_cb": on_error}
consumer = ShareConsumer(config)
consumer.set_acknowledgement_commit_callback(on_commit)
consumer.subscribe([sys.argv[3]])
seen = 0
while committed < 6:
    for message in consumer.poll(0.5):
        print(message.topic(), message.value().decode(), message.delivery_count())
        seen += 1
    consumer.commit_async()
consumer.close()
"""

SHARES_A_TOPIC_AMONG_THREADS = """
import sys
import threading
from confluent_kafka import DeserializingShareConsumer
from confluent_kafka.serialization import StringDeserializer

lock, values, done = threading.Lock(), [], threading.Event()

def work():
    consumer = DeserializingShareConsumer(
        {
            "bootstrap.servers": sys.argv[1],
            "group.id": sys.argv[2],
            "max.poll.records": 2,
            "value.deserializer": StringDeserializer("utf_8"),
        }
    )
    consumer.subscribe([sys.argv[3]])
    while not done.is_set():
        for message in consumer.poll(0.5):
            with lock:
                values.append((message.topic(), message.value(), message.delivery_count()))
                if len(values) == 6:
                    done.set()
        consumer.commit_sync()
    consumer.close()

threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for value in values:
    print(*value)
"""
PROGRAMS = {
    "accepts by polling": ACCEPTS_BY_POLLING,
    "decides each record": DECIDES_EACH_RECORD,
    "hears of its commits": HEARS_OF_ITS_COMMITS,
    "shares a topic among threads": SHARES_A_TOPIC_AMONG_THREADS,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_a_program_runs_with_the_import_changed(program, embedded, unique, own_runtime, tmp_path):
    imported = [node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.ImportFrom)]
    names = [name.name for node in imported if node.module == "confluent_kafka" for name in node.names]
    assert names and all(hasattr(confluent_kafka, name) for name in names)
    topic, group = unique("orders"), unique("group")
    embedded.create_topic(topic)
    producer = Producer({"bootstrap.servers": embedded.bootstrap_servers})
    for n in range(6):
        producer.produce(topic, f"v{n}")
    assert producer.flush(60) == 0
    ours = program.replace("from confluent_kafka import", "from sharegroup import")
    # A native group's configuration is set by kafka-configs.sh; ours are keys of the constructor.
    more = {"share.auto.offset.reset": "earliest", "share.state.store": f"sqlite:{tmp_path / 'state.db'}"}
    needed = '"group.id": sys.argv[2],'
    assert needed in ours
    ours = ours.replace(needed, f"{needed} **{more},")
    command = [sys.executable, "-c", ours, embedded.bootstrap_servers, group, topic]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    deliveries = {line.split()[1]: line.split()[2] for line in done.stdout.splitlines()}
    again = {"v1": "2"} if program == DECIDES_EACH_RECORD else {}
    assert deliveries == {f"v{n}": "1" for n in range(6)} | again
