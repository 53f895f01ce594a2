"""The process of ``sharegroup web``, and a browser without scripts that requests its addresses one by one."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.kafka_broker import KafkaBroker
from tests.support.standalone import environment
from tests.support.waiting import wait_until

EVERY_S = 0.25
"""The browser sends a request every 0.25 seconds."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """An address that a person opens: its name in the results, its path, and the fields of its form if it is posted."""

    name: str
    path: str
    form: Mapping[str, object] | None = None


def page_at(name: str, path: str, **values: object) -> Address:
    """A page by the values of its address."""
    return Address(name=name, path=f"{path}?{urllib.parse.urlencode(values)}" if values else path)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer of the page: the name of its address, its duration and its size."""

    name: str
    text: str
    ms: float
    size: int
    location: str = ""


class Browser:
    """It is signed in from the beginning."""

    def __init__(self, host: str, token: str) -> None:
        self._host = host
        connection = http.client.HTTPConnection(host, timeout=120)
        connection.request("POST", "/login", f"token={token}", {"Origin": f"http://{host}"})
        answer = connection.getresponse()
        assert answer.status == 303
        self._cookie = str(answer.headers["set-cookie"]).partition(";")[0]
        connection.close()
        found = re.search(r'name="csrf" value="([^"]+)"', self.get(page_at("all groups", "/")).text)
        assert found is not None
        self._csrf = found[1]

    def get(self, address: Address) -> Answer:
        """The answer at this address; of a form, to its fields."""
        headers, body = {"Cookie": self._cookie}, None
        if address.form is not None:
            body = urllib.parse.urlencode({"csrf": self._csrf, **address.form})
            headers |= {"Origin": f"http://{self._host}", "Content-Type": "application/x-www-form-urlencoded"}
        began_s = time.perf_counter()
        with contextlib.closing(http.client.HTTPConnection(self._host, timeout=120)) as connection:
            connection.request("GET" if body is None else "POST", address.path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            ms = (time.perf_counter() - began_s) * 1000
        text, location = data.decode(), answer.headers["location"] or ""
        assert answer.status == 200 or (answer.status == 303 and "/login" not in location), (address, text[:2_000])
        return Answer(name=address.name, text=text, ms=ms, size=len(data), location=location)

    def look(self, addresses: Sequence[Address], end_at: float, *, begin: int = 0) -> list[Answer]:
        """Requests the addresses in order, from number ``first`` on, until this time, and follows redirects."""
        found: list[Answer] = []
        at, location, name = begin, "", ""
        while time.time() < end_at:
            if location:
                answer = self.get(Address(name=f"{name}, its result", path=location))
            else:
                answer = self.get(addresses[at % len(addresses)])
                at += 1
            found.append(answer)
            location, name = answer.location, answer.name
            time.sleep(max(0.0, EVERY_S - answer.ms / 1000))
        return found


@contextlib.contextmanager
def open_page(broker: KafkaBroker, store: str, folder: Path) -> Iterator[tuple[Browser, psutil.Process]]:
    """The page in a process of its own, with full histories: a browser that is signed in, and the process."""
    log = folder / "web.log"
    cluster = ["--bootstrap-server", broker.bootstrap, "--command-property", f"share.state.store={store}"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.filled_page", "web", *cluster, "--port", "0"],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment(dict(os.environ)),
        )  # fmt: skip
    try:
        wait_until(lambda: "Sign in" in log.read_text() or process.poll() is not None, what="the page is shown")
        (host,) = re.findall(r"The page is at http://([^/]+)/\n", log.read_text())
        (token,) = re.findall(r"Sign in with this token.*: (\S+)\n", log.read_text())
        yield Browser(host, token), psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait(timeout=120)
