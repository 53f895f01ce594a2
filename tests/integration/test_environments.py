"""A program, the coordinator that it starts, and its ShareConsumer, in the environments that people have: behind a
proxy, beside modules named as Python's own, with few files, as a user without a home, in processes made by fork."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sharegroup.demo.processes import kill_coordinators

pytestmark = pytest.mark.broker

READS = """
from sharegroup import ShareConsumer
with ShareConsumer({"bootstrap.servers": BOOT, "group.id": GROUP, "share.auto.offset.reset": "earliest"}) as consumer:
    consumer.subscribe([TOPIC])
    values = []
    while len(values) < 3:
        values += [message.value() for message in consumer.poll(1.0)]
    consumer.commit_sync()
print("read", len(values))
"""
"""It reads three records, with a coordinator that it starts."""
FORKS = """
import multiprocessing, os
from sharegroup import Admin, ShareConsumer, UsedAfterFork
CONFIG = {"bootstrap.servers": BOOT, "group.id": GROUP, "share.auto.offset.reset": "earliest"}

def refused(call):
    try:
        call()
    except UsedAfterFork as error:
        assert "before the fork" in str(error)
        return True
    return False

def child():
    assert refused(lambda: ShareConsumer(CONFIG))
    assert refused(lambda: admin.describe_groups([GROUP]))
    assert refused(lambda: Admin({"bootstrap.servers": BOOT}).describe_groups([GROUP]))
    print("refused", flush=True)

def after():
    with ShareConsumer({**CONFIG, "group.id": GROUP + "-child"}) as consumer:
        consumer.subscribe([TOPIC])
        while not (polled := consumer.poll(1.0)):
            pass
        print("read", len(polled), flush=True)

def run(target):
    worker = multiprocessing.get_context("fork").Process(target=target)
    worker.start()
    worker.join()
    print("exit", worker.exitcode, flush=True)

with Admin({"bootstrap.servers": BOOT}) as admin, ShareConsumer(CONFIG) as consumer:
    consumer.subscribe([TOPIC])
    while not consumer.poll(1.0):
        pass
    admin.describe_groups([GROUP])
    run(child)
run(after)
"""
"""Its first child is forked while connections are open, its second one after they were closed."""

PROXY = "http://127.0.0.1:9"
PROXIES = {
    name: PROXY for each in ("http", "https", "grpc", "all") for name in (f"{each}_proxy", f"{each}_PROXY".upper())
}
OWN = ("secrets", "email")
"""Modules beside the program, with names of Python's own that a coordinator imports."""


@pytest.fixture
def orders(topic: Any, kafka: Any) -> str:
    name: str = topic()
    kafka.produce(name, ["a", "b", "c"])
    return name


class Folder:
    """The folder of a program, with a runtime directory of its own, whose coordinator is ended."""

    def __init__(self, path: Path, kafka: Any, topic: str, group: str) -> None:
        self.path, self.kafka, self.topic, self.group = path, kafka, topic, group
        self.runtime = path / "runtime"
        self.runtime.mkdir(mode=0o700)
        (path / "program").mkdir()

    def run(
        self, text: str, *flags: str, env: Mapping[str, str] | None = None, before: tuple[str, ...] = (), **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """What the program prints, after the words of ``before``."""
        where = f"BOOT, TOPIC, GROUP = {self.kafka.bootstrap!r}, {self.topic!r}, {self.group!r}\n"
        file = self.path / "program" / "app.py"
        file.write_text(where + textwrap.dedent(text))
        own = {"SHAREGROUP_RUNTIME_DIR": str(self.runtime), **(env or {})}
        return subprocess.run(
            [*before, sys.executable, *flags, str(file)],
            cwd=file.parent,
            env={name: value for name, value in {**os.environ, **own}.items() if value},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            **options,
        )


@pytest.fixture
def folder(tmp_path: Path, kafka: Any, orders: str, unique: Any) -> Any:
    made = Folder(tmp_path, kafka, orders, unique("group"))
    yield made
    kill_coordinators(made.runtime)
    for log in made.runtime.glob("coordinator-*.log"):
        assert "Traceback" not in log.read_text()


def assert_it_reads(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stdout) == (0, "read 3\n"), done.stderr


def test_a_proxy_in_the_environment_gets_no_request(folder: Folder) -> None:
    assert_it_reads(folder.run(READS, env=PROXIES))


def test_modules_named_as_pythons_own_stay_the_programs(folder: Folder) -> None:
    for name in OWN:
        (folder.path / "program" / f"{name}.py").write_text("API_KEY = 'x'\n")
    assert_it_reads(folder.run(READS))


def test_python_in_development_mode_warns_of_nothing(folder: Folder) -> None:
    done = folder.run(READS, "-X", "dev", "-W", "error::ResourceWarning")
    assert_it_reads(done)
    assert done.stderr == ""


def test_256_open_files_are_enough(folder: Folder) -> None:
    assert_it_reads(folder.run(READS, before=("sh", "-c", 'ulimit -n 256; exec "$@"', "sh")))


def test_a_user_without_a_home_on_a_read_only_disk_reads(folder: Folder) -> None:
    """As a container has it: any number as its user, and one directory that can be written to, of TMPDIR."""
    prepare = f"mount -o remount,bind,ro / && mount -t tmpfs tmpfs {folder.runtime}"
    user = "unshare --user --map-user=54321 --map-group=54321"
    own = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c")
    before = (*own, f'{prepare} && exec {user} "$@"', "sh")
    if subprocess.run([*before, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a mount namespace needs root")
    unset = dict.fromkeys(("SHAREGROUP_RUNTIME_DIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"), "")
    done = folder.run(READS, before=before, env={**unset, "HOME": "/", "TMPDIR": str(folder.runtime)})
    assert_it_reads(done)


def test_a_child_forked_beside_open_connections_is_refused_by_name(folder: Folder) -> None:
    done = folder.run(FORKS)
    assert done.stdout.splitlines() == ["refused", "exit 0", "read 3", "exit 0"], done.stderr
