"""A broker with a listener for each kind of security, its certificates, and an endpoint that issues OAuth tokens.

The rule: keys and certificates are made anew in each run; the test's own address stays open to everybody.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import trustme
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.broker_versions import chosen_version, is_at_least
from tests.support.iam_signer import AUDIENCE, base64_text, signed
from tests.support.java_options import BROKER_OPTIONS
from tests.support.kafka_broker import KafkaBroker

PASSWORD = "alice-s3cret"
CLIENT_SECRET = "the-client-s3cret"
_OAUTH = "org.apache.kafka.common.security.oauthbearer."
_LISTENERS = {"SCRAM": "SASL_SSL", "TLS": "SSL", "MUTUAL": "SSL", "OAUTH": "SASL_SSL", "CLEAR": "SASL_PLAINTEXT"}


class Authority:
    """A certificate authority, and certificates of it as files in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(exist_ok=True)
        self._folder, self._ca = folder, trustme.CA()
        self.ca = folder / f"{name}-ca.pem"
        self._ca.cert_pem.write_to_path(str(self.ca))

    def __repr__(self) -> str:
        return f"<Authority {self.ca}>"

    def issue(self, name: str) -> Path:
        """A certificate for loopback and its key, in one file; the key in the form that Java reads (PKCS 8)."""
        issued = self._ca.issue_cert("localhost", "127.0.0.1", common_name=name)
        key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        path = self._folder / f"{name}.pem"
        path.write_bytes(key.private_bytes(*form) + b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        path.chmod(0o600)
        return path


class TokenEndpoint:
    """Issues tokens over HTTP, as an identity provider does. Tests change `lifetime_s`, `audience` and `status`."""

    def __init__(self, folder: Path) -> None:
        self.lifetime_s, self.audience, self.status, self.issued = 3600, AUDIENCE, 200, 0
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        numbers = self._key.public_key().public_numbers()
        parts = {"n": base64_text(numbers.n.to_bytes(256, "big")), "e": base64_text(numbers.e.to_bytes(3, "big"))}
        self.keys = folder / "jwks.json"
        self.keys.write_text(json.dumps({"keys": [{"kty": "RSA", "kid": "1", "alg": "RS256", "use": "sig", **parts}]}))
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                body = json.dumps(endpoint.answer()).encode()
                self.send_response(endpoint.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<TokenEndpoint {self.url}>"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/token"

    def answer(self) -> dict[str, object]:
        if self.status != 200:
            return {"error": "invalid_client"}
        self.issued += 1
        return {"access_token": self.token(), "token_type": "Bearer", "expires_in": self.lifetime_s}

    def token(self) -> str:
        return signed(self._key, self.audience, self.lifetime_s)

    def write_key(self, path: Path) -> Path:
        """Write the private key, for a client that signs its tokens itself."""
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        path.write_bytes(self._key.private_bytes(*form))
        return path

    @contextmanager
    def changed(self, **attributes: object) -> Iterator[None]:
        """Issues other tokens inside of the block."""
        before = {name: getattr(self, name) for name in attributes}
        vars(self).update(attributes)
        try:
            yield
        finally:
            vars(self).update(before)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class SecuredBroker:
    """A broker with all the listeners. `configs`: how a client reaches each of them, by the kind of security.
    `java_options`: none where the broker's speed is measured."""

    def __init__(self, folder: Path, java_options: Sequence[str] = BROKER_OPTIONS) -> None:
        self.authority, self.stranger = Authority(folder, "own"), Authority(folder, "stranger")
        self.tokens = TokenEndpoint(folder)
        try:
            self.broker = _start(folder, self.authority, self.tokens, java_options)
        except BaseException:
            self.tokens.close()
            raise
        self._make_users()
        client = self.authority.issue("client")
        trusts = {"ssl.ca.location": str(self.authority.ca)}
        scram = {
            "security.protocol": "SASL_SSL",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
            **trusts,
            "bootstrap.servers": self.broker.address("SCRAM"),
        }
        tls = {"security.protocol": "SSL", **trusts}
        oauth = {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "sharegroup",
            "sasl.oauthbearer.client.secret": CLIENT_SECRET,
            "sasl.oauthbearer.token.endpoint.url": self.tokens.url,
        }
        shown = {"ssl.certificate.location": str(client), "ssl.key.location": str(client)}
        self.configs: dict[str, dict[str, str]] = {
            "SCRAM-SHA-256": {**scram, "sasl.mechanism": "SCRAM-SHA-256"},
            "SCRAM-SHA-512": {**scram, "sasl.mechanism": "SCRAM-SHA-512"},
            "TLS": {**tls, "bootstrap.servers": self.broker.address("TLS")},
            "mutual TLS": {**tls, **shown, "bootstrap.servers": self.broker.address("MUTUAL")},
            "OAUTHBEARER": {
                "security.protocol": "SASL_SSL",
                **oauth,
                **trusts,
                "bootstrap.servers": self.broker.address("OAUTH"),
            },
            "OAUTHBEARER without TLS": {
                "security.protocol": "SASL_PLAINTEXT",
                **oauth,
                "bootstrap.servers": self.broker.address("CLEAR"),
            },
        }

    def __repr__(self) -> str:
        return f"<SecuredBroker {self.broker!r}>"

    def close(self) -> None:
        self.broker.stop()
        self.tokens.close()

    def _make_users(self) -> None:
        changes = [
            UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for change in changes:
            for done in self.broker.admin.alter_user_scram_credentials([change]).values():
                done.result(60)


def _start(folder: Path, authority: Authority, tokens: TokenEndpoint, java_options: Sequence[str]) -> KafkaBroker:
    keys = tokens.keys.as_uri()
    config = {"sasl.oauthbearer.jwks.endpoint.url": keys, "sasl.oauthbearer.expected.audience": AUDIENCE}
    server = authority.issue("server")
    for listener in ("scram", "tls", "mutual", "oauth"):
        own = f"listener.name.{listener}.ssl."
        config |= {f"{own}keystore.type": "PEM", f"{own}keystore.location": str(server)}
        config |= {f"{own}truststore.type": "PEM", f"{own}truststore.location": str(authority.ca)}
    config["listener.name.mutual.ssl.client.auth"] = "required"
    config["listener.name.scram.sasl.enabled.mechanisms"] = "SCRAM-SHA-256,SCRAM-SHA-512"
    for mechanism in ("scram-sha-256", "scram-sha-512"):
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        config[f"listener.name.scram.{mechanism}.sasl.jaas.config"] = login
    package = _OAUTH if is_at_least(chosen_version(), "4.0") else f"{_OAUTH}secured."
    for own in ("listener.name.oauth.", "listener.name.clear."):
        handler = package + "OAuthBearerValidatorCallbackHandler"
        config[f"{own}sasl.enabled.mechanisms"] = "OAUTHBEARER"
        config[f"{own}oauthbearer.sasl.jaas.config"] = _OAUTH + "OAuthBearerLoginModule required;"
        config[f"{own}oauthbearer.sasl.server.callback.handler.class"] = handler
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"
    return KafkaBroker(
        heap="512m",
        listeners=_LISTENERS,
        java_options=(*java_options, allowed, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={folder}"),
        **{key.replace(".", "_"): value for key, value in config.items()},
    )
