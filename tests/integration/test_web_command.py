"""The command `sharegroup web` as a person starts it: it says where the page is, how to sign in, and ends when told."""

from __future__ import annotations

import contextlib
import http.client
import re
import signal
import subprocess
import urllib.parse

from tests.support.standalone import command, environment
from tests.support.waiting import wait_until


def test_the_command_prints_the_pages_address_and_ends_on_a_signal(embedded, tmp_path):
    log = tmp_path / "log"
    arguments = command(["web", "--bootstrap-server", embedded.bootstrap_servers, "--port", "0"])
    with log.open("wb") as out:
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment({}))
    try:
        wait_until(lambda: "Sign in" in log.read_text() or process.poll() is not None, what="the page is shown")
        assert process.poll() is None, log.read_text()
        (url,) = re.findall(r"The page is at (http://127\.0\.0\.1:\d+/)\n", log.read_text())
        (token,) = re.findall(r"Sign in with this token.*: (\S+)\n", log.read_text())
        host = urllib.parse.urlsplit(url).netloc
        with contextlib.closing(http.client.HTTPConnection(host, timeout=120)) as connection:
            connection.request("POST", "/login", f"token={token}", {"Origin": f"http://{host}"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 303
            connection.request("GET", "/", headers={"Cookie": answer.headers["set-cookie"].partition(";")[0]})
            assert "Share groups" in connection.getresponse().read().decode()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 0
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()
        process.wait(timeout=120)
