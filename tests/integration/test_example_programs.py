"""A program as it is written for confluent_kafka runs when the name in its imports is changed; tests/same_program has
more of them."""

from __future__ import annotations

import subprocess
import sys

from confluent_kafka import Producer

from tests.support.imports import ROOT

PROGRAM = """
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


def test_a_program_with_threads_runs_with_the_import_changed(embedded, unique, own_runtime, tmp_path):
    topic, group = unique("orders"), unique("group")
    embedded.create_topic(topic)
    producer = Producer({"bootstrap.servers": embedded.bootstrap_servers})
    for n in range(6):
        producer.produce(topic, f"v{n}")
    assert producer.flush(60) == 0
    ours = PROGRAM.replace("from confluent_kafka import", "from sharegroup import")
    # A native group's configuration is set by kafka-configs.sh; ours are keys of the constructor.
    more = {"share.auto.offset.reset": "earliest", "share.state.store": f"sqlite:{tmp_path / 'state.db'}"}
    needed = '"group.id": sys.argv[2],'
    assert needed in ours
    ours = ours.replace(needed, f"{needed} **{more},")
    command = [sys.executable, "-c", ours, embedded.bootstrap_servers, group, topic]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    deliveries = {line.split()[1]: line.split()[2] for line in done.stdout.splitlines()}
    assert deliveries == {f"v{n}": "1" for n in range(6)}
