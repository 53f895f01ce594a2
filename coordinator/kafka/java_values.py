"""Translates values in Java's forms to librdkafka's: JAAS configurations, key stores, PEM on one line, -1 for the
system's default.

Rule: pure, and an error never has the value of a secret."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping

from coordinator.protocol.option_errors import InvalidOption, RefusedOption

JAAS = "sasl.jaas.config"
_HANDLER = "sasl.login.callback.handler.class"
_RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
_TRUST_STORE, _TRUST_TYPE = "ssl.truststore.location", "ssl.truststore.type"
_KEY_STORE, _KEY_TYPE = "ssl.keystore.location", "ssl.keystore.type"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_OIDC = {"sasl.oauthbearer.method": "oidc"}
MSK = (
    "MSK's tokens are signed by code: use kafka.sasl.mechanism=OAUTHBEARER, and kafka.oauth_cb=MODULE:FUNCTION, which "
    "docs/run/brokers.md shows; or SCRAM, or mutual TLS."
)
_IAM = ("iam.iamclientcallbackhandler", "iam.iamoauthbearerlogincallbackhandler")
_PEM_ENDS = (".pem", ".crt", ".cer")
_CONVERT_TRUST = (
    "Use kafka.ssl.ca.location with a PEM file: keytool -exportcert -rfc -keystore FILE -alias NAME -file ca.pem."
)
_CONVERT_KEYS = "Convert it: keytool -importkeystore -deststoretype pkcs12 -srckeystore FILE -destkeystore client.p12."
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"' + r"|'((?:[^'\\]|\\.)*)'|([^\s\"'=;]+)|([=;])|(\S)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


def by_value(key: str, value: str, given: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of librdkafka for a key of ``java_keys.BY_VALUE``. ``given``: all keys that were given.
    Raises RefusedOption or InvalidOption if the value has no counterpart in librdkafka."""
    return _BY_VALUE[key](value.strip(), given)


def _jaas(value: str, given: Mapping[str, str]) -> dict[str, str]:
    module, settings = _login_module(value)
    name = module.lower().rpartition(".")[2]
    if name == "iamloginmodule":
        raise RefusedOption(option=_named(JAAS), reason="it is for IAM.", instead=MSK)
    if name in ("plainloginmodule", "scramloginmodule"):
        if settings.get("tokenauth", "false").lower() == "true":
            reason = "librdkafka has no logins by delegation token."
            raise RefusedOption(option=_named(JAAS), reason=reason, instead="Use a user and a password.")
        return _picked(settings, {"username": "sasl.username", "password": "sasl.password"})
    if name == "krb5loginmodule":
        return _kerberos(settings)
    if name == "oauthbearerloginmodule":
        return _oauth(settings)
    raise RefusedOption(
        option=_named(JAAS),
        reason="librdkafka has no counterpart of its login module.",
        instead="It reads Kafka's PlainLoginModule, ScramLoginModule and OAuthBearerLoginModule, and Java's "
        "Krb5LoginModule; or use kafka.sasl.username and kafka.sasl.password.",
    )


def _login_module(value: str) -> tuple[str, dict[str, str]]:
    words = [match.groups() for match in _TOKEN.finditer(value)]
    quoted = [double if double is not None else single for double, single, *_ in words]
    plain = [word or mark or rest for *_, word, mark, rest in words]
    texts = [_unescaped(text) if text is not None else word for text, word in zip(quoted, plain, strict=True)]
    is_one = len(plain) >= 3 and plain[-1] == ";" and plain.count(";") == 1
    pairs = texts[2:-1]
    marks = [n for n, mark in enumerate(plain[2:-1]) if mark == "="]
    are_pairs = len(pairs) % 3 == 0 and marks == [*range(1, len(pairs), 3)]
    if not (is_one and are_pairs and texts[1].lower() in _FLAGS) or any(word[-1] for word in words):
        problem = 'it is not a login module, "required", pairs of name="value", and a semicolon at the end. '
        problem += "Or use kafka.sasl.username and kafka.sasl.password."
        raise InvalidOption(option=_named(JAAS), problem=problem)
    return texts[0], dict(zip(pairs[::3], pairs[2::3], strict=True))


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text, flags=re.DOTALL)


def _picked(settings: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    return {name: settings[ours] for ours, name in names.items() if settings.get(ours)}


def _kerberos(settings: Mapping[str, str]) -> dict[str, str]:
    found = _picked(
        settings,
        {
            "keyTab": "sasl.kerberos.keytab",
            "principal": "sasl.kerberos.principal",
            "serviceName": "sasl.kerberos.service.name",
        },
    )
    if "keyTab" not in settings and settings.get("useTicketCache", "").lower() == "true":
        found["sasl.kerberos.min.time.before.relogin"] = "0"  # else librdkafka calls kinit, which needs a keytab
    return found


def _oauth(settings: Mapping[str, str]) -> dict[str, str]:
    names = {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    }
    extensions = [f"{k.removeprefix('extension_')}={v}" for k, v in settings.items() if k.startswith("extension_")]
    found = _picked(settings, names)
    if extensions:
        found["sasl.oauthbearer.extensions"] = ",".join(extensions)
    if principal := settings.get("unsecuredLoginStringClaim_sub"):
        found |= {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={principal}"}
    return found


def _login_handler(value: str, given: Mapping[str, str]) -> dict[str, str]:
    name = value.lower()
    if name.endswith(_IAM):
        raise RefusedOption(option=_named(_HANDLER), reason="it is for IAM.", instead=MSK)
    if name.startswith("org.apache.kafka.") and name.endswith(".oauthbearerlogincallbackhandler"):
        return _OIDC
    reason = "it is for Java clients only, and this project uses librdkafka."
    instead = "Use kafka.sasl.oauthbearer.method=oidc with kafka.sasl.oauthbearer.*."
    raise RefusedOption(option=_named(_HANDLER), reason=reason, instead=instead)


def _token_retriever(value: str, given: Mapping[str, str]) -> dict[str, str]:
    grants = {
        "defaultjwtretriever": {},
        "clientcredentialsjwtretriever": {"sasl.oauthbearer.grant.type": "client_credentials"},
        "jwtbearerjwtretriever": {"sasl.oauthbearer.grant.type": JWT_BEARER},
    }
    package, _, name = value.lower().rpartition(".")
    if package != "org.apache.kafka.common.security.oauthbearer" or name not in grants:
        reason = "librdkafka has no counterpart of this class."
        instead = "Use kafka.sasl.oauthbearer.method=oidc, and kafka.sasl.oauthbearer.grant.type."
        raise RefusedOption(option=_named(_RETRIEVER), reason=reason, instead=instead)
    return {**_OIDC, **grants[name]}


def _trust_store(value: str, given: Mapping[str, str]) -> dict[str, str]:
    kind = given.get(_TRUST_TYPE, "").strip().upper()
    if kind == "PEM" or (not kind and value.lower().endswith(_PEM_ENDS)):
        return {"ssl.ca.location": value}
    reason = "librdkafka reads no Java key stores."
    raise RefusedOption(option=_named(_TRUST_STORE), reason=reason, instead=_CONVERT_TRUST)


def _trust_type(value: str, given: Mapping[str, str]) -> dict[str, str]:
    if value.upper() == "PEM":
        return {}
    option = _TRUST_STORE if _TRUST_STORE in given else _TRUST_TYPE
    raise RefusedOption(option=_named(option), reason="librdkafka reads no Java key stores.", instead=_CONVERT_TRUST)


def _key_type(value: str, given: Mapping[str, str]) -> dict[str, str]:
    if value.upper() in ("PEM", "PKCS12"):
        return {}
    option = _KEY_STORE if _KEY_STORE in given else _KEY_TYPE
    raise RefusedOption(
        option=_named(option), reason="librdkafka reads PKCS#12 key stores, no JKS.", instead=_CONVERT_KEYS
    )


def key_store(value: str, given: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties for ssl.keystore.location. Raises RefusedOption if its name says that it is a JKS file."""
    if given.get(_KEY_TYPE, "").strip().upper() == "PEM":
        return {"ssl.certificate.location": value, "ssl.key.location": value}
    if value.strip().lower().endswith(".jks"):
        reason = "librdkafka reads PKCS#12 key stores, no JKS."
        raise RefusedOption(option=_named(_KEY_STORE), reason=reason, instead=_CONVERT_KEYS)
    return {_KEY_STORE: value}


_BY_VALUE: dict[str, Callable[[str, Mapping[str, str]], dict[str, str]]] = {
    JAAS: _jaas,
    _HANDLER: _login_handler,
    _RETRIEVER: _token_retriever,
    _TRUST_STORE: _trust_store,
    _TRUST_TYPE: _trust_type,
    _KEY_TYPE: _key_type,
}

_BOOLEANS = frozenset({"true", "false"})
_SYSTEMS = frozenset({"socket.receive.buffer.bytes", "socket.send.buffer.bytes", "connections.max.idle.ms"})
PEMS = frozenset({"ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem", "https.ca.pem"})


def java_value(key: str, name: str, value: str) -> str:
    """The value of Java's ``key`` as that of librdkafka's ``name``: texts that librdkafka reads come back unchanged."""
    text = value.strip()
    if name == "ssl.endpoint.identification.algorithm" and not text:
        return "none"
    if name in _SYSTEMS and text == "-1":  # in Java: the system's size, and idle connections stay open
        return "0"
    if name in PEMS:
        return _PEM.sub(_in_lines, value.replace("\\n", "\n"))
    if key == "buffer.memory" and text.isdecimal():
        return str(max(int(text) // 1024, 1))
    if name == "sasl.kerberos.kinit.cmd" and text and "%{" not in text and " " not in text:
        # Java's value is the program alone
        return f'{text} -t "%{{sasl.kerberos.keytab}}" -k %{{sasl.kerberos.principal}}'
    return text.lower() if text.lower() in _BOOLEANS else value


def _in_lines(match: re.Match[str]) -> str:
    """A PEM block with line ends. A block with headers has them already."""
    kind, body = match.groups()
    if ":" in body:
        return match[0]
    lines = textwrap.wrap("".join(body.split()), 64)
    return "\n".join((f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----"))


def _named(key: str) -> str:
    return f"kafka.{key}"
