"""A PostgreSQL server on loopback, with a database of its own in a folder that goes with it.

The rule: the server is the test's own, and ends with the test's process, however that ends. PostgreSQL refuses root,
so under root the server is `nobody`'s.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.ports import free_ports
from tests.support.waiting import wait_until

DEBIANS = Path("/usr/lib/postgresql")
"""Debian has a folder here for each version, and does not put them on the PATH."""


def programs() -> Path | None:
    """The folder with initdb and postgres; None if this machine has no PostgreSQL server."""
    on_path = shutil.which("initdb")
    found = [Path(on_path).resolve().parent] if on_path else sorted(DEBIANS.glob("*/bin"), reverse=True)
    return next((each for each in found if (each / "initdb").exists() and (each / "postgres").exists()), None)


class PostgresServer:
    """A server that answers. `database` is what psycopg.connect() takes."""

    def __init__(self, folder_of_programs: Path) -> None:
        self._programs = folder_of_programs
        self._folder = Path(tempfile.mkdtemp(prefix="sgt-postgres-"))
        guard = Path(__file__).with_name("process_guard.py")
        self._guard = subprocess.Popen(
            [sys.executable, str(guard), str(self._folder)], stdin=subprocess.PIPE, text=True, start_new_session=True
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._port = free_ports(1)[0]
        self._password = secrets.token_hex(16)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<PostgresServer 127.0.0.1:{self._port}>"

    def __enter__(self) -> PostgresServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def database(self) -> str:
        return f"host=127.0.0.1 port={self._port} dbname=postgres user=postgres password={self._password}"

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """What a statement returns, in a transaction of its own; none if it is no query."""
        import psycopg  # here: the tests are collected also where there is neither the server nor psycopg

        with psycopg.connect(self.database) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        """End the server, and remove its folder."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # "fast": connections are ended
            self._process.wait(60)
        self._guard.communicate("0\n", timeout=60)

    def _start(self) -> None:
        owner: dict[str, Any] = {}
        password = self._folder / "password"
        password.write_text(self._password)
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            for path in (self._folder, password):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
            owner = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        data, log = self._folder / "data", self._folder / "server.log"
        making = [self._programs / "initdb", "-D", data, "-U", "postgres", "-A", "scram-sha-256", "--no-sync"]
        made = subprocess.run(
            [*making, "--locale=C", "--encoding=UTF8", f"--pwfile={password}"],
            capture_output=True, text=True, cwd=self._folder, **owner,
        )  # fmt: skip
        assert made.returncode == 0, made.stdout + made.stderr
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self._port,
            "unix_socket_directories": "",
            "fsync": "off",  # the host does not crash
        }
        words = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", data, *words],
                stdout=output, stderr=output, cwd=self._folder, start_new_session=True, **owner,
            )  # fmt: skip
        assert self._guard.stdin is not None
        self._guard.stdin.write(f"{self._process.pid}\n")
        self._guard.stdin.flush()
        wait_until(lambda: self._answers(log), what="PostgreSQL answers")

    def _answers(self, log: Path) -> bool:
        import psycopg

        assert self._process is not None and self._process.poll() is None, log.read_text()
        try:
            return self.rows("SELECT 1") == [(1,)]
        except psycopg.OperationalError:
            return False
