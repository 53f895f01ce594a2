"""A Kerberos KDC on loopback, with keytabs for a broker and a client; and a confluent-kafka that has Kerberos, since
that of PyPI has none.

The rule: realm, database, port and process are the test's own, in a folder that goes with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.ports import free_ports
from tests.support.waiting import wait_until

REALM = "SHAREGROUP.TEST"
BROKER, CLIENT = f"kafka/127.0.0.1@{REALM}", f"alice@{REALM}"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
BUILDERS = ("npm", "make", "gcc", "pkg-config")
CONFLUENT = "2.15.0"
SOURCE = "@confluentinc/kafka-javascript@1.10.1"
"""A package whose folder ``deps/librdkafka`` is the source of librdkafka 2.15.1: the newest that a registry has."""
_SBIN = ("/usr/sbin", "/sbin")


def missing_programs() -> list[str]:
    """The programs that are not on this machine, without which there is no KDC, and no client with Kerberos."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *_SBIN))
    has_sasl = Path("/usr/include/sasl/sasl.h").exists()
    found = [name for name in (*PROGRAMS, *BUILDERS) if shutil.which(name, path=path) is None]
    return found if has_sasl else [*found, "libsasl2-dev"]


class Kdc:
    """A KDC with a principal for a broker and one for a client."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_ports(1)[0]
        self.config = folder / "krb5.conf"
        self.broker_keytab, self.client_keytab = folder / "broker.keytab", folder / "client.keytab"
        self._profile = folder / "kdc.conf"
        self._write_profiles()
        self.environment = {"KRB5_CONFIG": str(self.config)}
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master-s3cret")
        for principal, keytab in ((BROKER, self.broker_keytab), (CLIENT, self.client_keytab)):
            self._run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
            self._run("kadmin.local", "-r", REALM, "ktadd", "-k", str(keytab), principal)
        self._process = self._start()

    def __repr__(self) -> str:
        return f"<Kdc {REALM} 127.0.0.1:{self.port}>"

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(60)

    def kinit(self, tickets: Path) -> None:
        """Get a ticket of the client, into a file."""
        self._run("kinit", "-k", "-t", str(self.client_keytab), "-c", f"FILE:{tickets}", CLIENT)

    def _start(self) -> subprocess.Popen[bytes]:
        with (self._folder / "kdc.log").open("wb") as log:
            process = subprocess.Popen(
                [_program("krb5kdc"), "-n", "-r", REALM], stdout=log, stderr=log, env=self._environment()
            )
        wait_until(lambda: self._answers(process), what="the KDC answers")
        return process

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        assert process.poll() is None, (self._folder / "kdc.log").read_text()
        command = [
            _program("kinit"),
            "-k",
            "-t",
            str(self.client_keytab),
            "-c",
            f"FILE:{self._folder / 'first'}",
            CLIENT,
        ]
        return subprocess.run(command, env=self._environment(), capture_output=True, check=False).returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [_program(program), *arguments], env=self._environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.environment, "KRB5_KDC_PROFILE": str(self._profile)}

    def _write_profiles(self) -> None:
        self.config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self.port}\n }}\n"
            f"[domain_realm]\n 127.0.0.1 = {REALM}\n"
        )
        self._profile.write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self.port}\n kdc_tcp_listen = 127.0.0.1:{self.port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {self._folder / 'principal'}\n"
            f"  key_stash_file = {self._folder / 'stash'}\n  acl_file = {self._folder / 'acl'}\n"
            f"  kdc_listen = 127.0.0.1:{self.port}\n  kdc_tcp_listen = 127.0.0.1:{self.port}\n }}\n"
        )


def _program(name: str) -> str:
    path = os.pathsep.join((os.environ.get("PATH", ""), *_SBIN))
    found = shutil.which(name, path=path)
    assert found is not None, f"{name} is missing"
    return found


def build_client(folder: Path) -> dict[str, str]:
    """Build librdkafka on libsasl2, and confluent-kafka on that, as docs/run/brokers.md has it. Returns the environment
    in which Python imports them."""
    library, package = folder / "librdkafka", folder / "python"
    if not (package / "confluent_kafka").exists():
        shutil.rmtree(folder, ignore_errors=True)
        source = folder / "source"
        source.mkdir(parents=True)
        _build(["npm", "pack", SOURCE], folder)
        (archive,) = folder.glob("*.tgz")
        _build(
            ["tar", "-xzf", str(archive), "--strip-components=3", "-C", str(source), "package/deps/librdkafka"], folder
        )
        _build(["./configure", f"--prefix={library}"], source)
        _build(["make", "-j2", "libs"], source)
        _build(["make", "-C", "src", "install"], source)
        own = {"C_INCLUDE_PATH": str(library / "include"), "LIBRARY_PATH": str(library / "lib")}
        pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-binary", "confluent-kafka"]
        _build([*pip, "--target", str(package), f"confluent-kafka=={CONFLUENT}"], folder, own)
    return {"PYTHONPATH": str(package), "LD_LIBRARY_PATH": str(library / "lib")}


def _build(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
