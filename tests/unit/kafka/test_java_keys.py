"""Each key of Java's clients is translated, refused with what to use, or has no meaning here for a reason: the same in
options, in the files of commands and in a coordinator's file. The cases are Kafka's own ConfigDef."""

import ctypes
import pickle
import re
import shlex
from pathlib import Path

import confluent_kafka
import pytest

from coordinator.config.kafka_options import HIDDEN, UNSET_IF_EMPTY, is_harmless, redacted
from coordinator.kafka.java_keys import OF_THE_GROUP
from coordinator.kafka.properties import PROPERTIES
from coordinator.protocol.errors import ShareGroupError
from coordinator.service.standalone_config import read_config
from share_sink.options import SinkOptions
from share_sink.sink_option_table import OWNED as OWNED_BY_SINK
from share_source.options import SourceOptions
from share_source.source_option_table import OWNED as OWNED_BY_SOURCE
from sharegroup.__main__ import run
from sharegroup.cluster_options import settings
from tests.support.command_line import COMMANDS, LEAST
from tools.generate_java_keys import PAGE, ROOT, all_keys, outcome, page

KEYS = all_keys()
CLUSTER = {"kafka.bootstrap.servers": "localhost:9092", "kafka.group.id": "billing"}
OF_GROUPS = ("bootstrap.servers", "group.id")
"""Keys that source and sink have as options of their own."""
BY_VALUE = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "ssl.keystore.type",
    "ssl.truststore.location",
    "ssl.truststore.type",
)
"""Keys whose default in Java is no value, or one that librdkafka has no counterpart of; they have their own tests."""
SECRET = "§hunter2§"


def source(options):
    parsed = SourceOptions.parse({**CLUSTER, "subscribe": "orders", **options})
    parsed.check_kafka_config()
    return parsed.kafka_config


def sink(options):
    parsed = SinkOptions.parse({**CLUSTER, **options})
    parsed.check_kafka_config()
    return parsed.kafka_config


def properties_file(path, properties):
    escaped = {key: value.replace("\\", "\\\\").replace("\n", "\\n") for key, value in properties.items()}
    path.write_text("".join(f"{key}={value}\n" for key, value in escaped.items()), "utf-8")
    return str(path)


def of_command(properties, tmp_path):
    return settings("localhost:9092", properties_file(tmp_path / "client.properties", properties), {})


def of_coordinator(properties, tmp_path):
    needed = {"bootstrap.servers": "localhost:9092", "share.state.store": "sqlite:state.db"}
    named = {f"kafka.{key}": value for key, value in properties.items()}
    return read_config(properties_file(tmp_path / "coordinator.properties", {**needed, **named}), {}).settings


def everywhere(properties, tmp_path):
    """The translations of the same properties by each way in, as (way, prefix of keys, properties or error)."""
    named = {f"kafka.{key}": value for key, value in properties.items()}
    ways = (
        ("source", "kafka.", lambda: source(named)),
        ("sink", "kafka.", lambda: sink(named)),
        ("command", "", lambda: of_command(properties, tmp_path)),
        ("coordinator", "kafka.", lambda: of_coordinator(properties, tmp_path).kafka_config),
    )
    for way, prefix, parse in ways:
        try:
            found = dict(parse())
        except ShareGroupError as error:
            yield way, prefix, error
        else:
            found.pop("bootstrap.servers", None)
            yield way, prefix, found


def owned_by(way, key):
    return key in {"source": OWNED_BY_SOURCE, "sink": OWNED_BY_SINK}.get(way, {})


def test_the_page_has_each_key():
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page(), "run: python tools/generate_java_keys.py"
    assert len(KEYS) > 140


def test_a_refused_key_is_named_as_written_with_what_to_do(tmp_path):
    for key in [key for key in KEYS if outcome(key)[0] in ("refused", "no meaning")]:
        kind, text = outcome(key)
        for way, prefix, found in everywhere({key: SECRET}, tmp_path):
            if isinstance(found, dict):  # librdkafka has it; the group's members or one side do without it
                assert key in PROPERTIES or key in OF_THE_GROUP or (way, found) == ("command", {}), way
                continue
            told = str(found)
            assert f"{prefix}{key}" in told, way
            assert is_harmless(key) or SECRET not in told, way
            if prefix == "":
                assert not re.search(r"\bkafka\.(?!apache)", told.replace("org.apache.kafka", "")), told
            if kind == "no meaning":
                assert f"it has no meaning here: {text}" in told


def test_javas_default_of_a_key_is_taken_everywhere(tmp_path):
    for key in [
        key for key in KEYS if outcome(key)[0] in ("native", "translated") and key not in (*OF_GROUPS, *BY_VALUE)
    ]:
        kind, text = outcome(key)
        default = KEYS[key][1] or ("" if KEYS[key][0] != "PASSWORD" else "x")
        for way, _, found in everywhere({key: default}, tmp_path):
            if owned_by(way, key):
                assert isinstance(found, ShareGroupError)
            elif key in ("sasl.oauthbearer.jwt.retriever.class",):
                assert found == {"sasl.oauthbearer.method": "oidc"}
            else:
                assert isinstance(found, dict), (way, str(found))
                name = text.strip("`") if kind == "translated" else key
                assert [*found] == ([] if not default and key in UNSET_IF_EMPTY else [name]), way


def _known_to_librdkafka():
    """librdkafka's own list of its properties; empty where its library is not beside confluent_kafka."""
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    libraries = sorted(folder.glob("librdkafka*.so*"))
    if not libraries:
        return ""
    library, c = ctypes.CDLL(str(libraries[0])), ctypes.CDLL(None)
    c.tmpfile.restype = library.rd_kafka_conf_properties_show.restype = ctypes.c_void_p
    for function in (library.rd_kafka_conf_properties_show, c.rewind, c.fclose):
        function.argtypes = [ctypes.c_void_p]
    c.fread.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
    buffer, file = ctypes.create_string_buffer(1_000_000), c.tmpfile()
    library.rd_kafka_conf_properties_show(file)
    c.rewind(file)
    size = c.fread(buffer, 1, len(buffer), file)
    c.fclose(file)
    return buffer.raw[:size].decode()


def test_the_names_of_properties_are_those_of_librdkafka():
    rows = [line.split("|") for line in _known_to_librdkafka().splitlines() if " | " in line]
    code = re.compile(r"see dedicated API|Type: pointer")
    names = {cells[0].strip() for cells in rows if not code.search(cells[-1])} - {"Property"}
    if not names:
        pytest.skip("librdkafka's library is not beside confluent_kafka")
    assert {name for name in names if not name.endswith("_cb")} == PROPERTIES


@pytest.mark.parametrize("key", [key for key, (kind, _) in KEYS.items() if kind == "PASSWORD"])
def test_a_key_that_java_calls_a_password_is_never_shown(key):
    assert redacted({key: SECRET}) == {key: HIDDEN}
    for name in re.findall(r"`([\w.]+)`", outcome(key)[1]):
        assert name == "sasl.kerberos.*" or redacted({name: SECRET}) == {name: HIDDEN}


def test_a_pickle_of_the_properties_is_a_plain_dict():
    found = source({"kafka.fetch.max.wait.ms": "100"})
    assert found.written == {"fetch.wait.max.ms": "fetch.max.wait.ms"}
    again = pickle.loads(pickle.dumps(found))
    assert type(again) is dict
    assert again == found


# --- values in Java's forms

PEM = "-----BEGIN CERTIFICATE-----\n" + "\n".join(("A" * 64, "B" * 20)) + "\n-----END CERTIFICATE-----"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
HANDLERS = "org.apache.kafka.common.security.oauthbearer"
LOGIN = {"sasl.username": "alice", "sasl.password": 'p"w;='}


@pytest.mark.parametrize(
    ("given", "translated"),
    [
        ({"receive.buffer.bytes": "-1"}, {"socket.receive.buffer.bytes": "0"}),
        ({"send.buffer.bytes": "-1"}, {"socket.send.buffer.bytes": "0"}),
        ({"connections.max.idle.ms": "-1"}, {"connections.max.idle.ms": "0"}),
        ({"check.crcs": "TRUE"}, {"check.crcs": "true"}),
        ({"check.crcs": " True "}, {"check.crcs": "true"}),
        ({"buffer.memory": "33554432"}, {"queue.buffering.max.kbytes": "32768"}),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        ({"ssl.truststore.certificates": PEM.replace("\n", " ")}, {"ssl.ca.pem": PEM}),
        ({"ssl.truststore.certificates": PEM.replace("\n", "\\n")}, {"ssl.ca.pem": PEM}),
        ({"ssl.truststore.certificates": PEM, "ssl.truststore.type": "PEM"}, {"ssl.ca.pem": PEM}),
        (
            {"sasl.kerberos.kinit.cmd": "/usr/bin/kinit"},
            {"sasl.kerberos.kinit.cmd": '/usr/bin/kinit -t "%{sasl.kerberos.keytab}" -k %{sasl.kerberos.principal}'},
        ),
        ({"sasl.jaas.config": f'{PLAIN} username="alice" password="p\\"w;=";'}, LOGIN),
        ({"sasl.jaas.config": f"{SCRAM} username='alice' password='p\"w;=' ;"}, LOGIN),
        (
            {"sasl.jaas.config": f'{KRB5} useKeyTab=true keyTab="/dev/null" principal="a b@B" serviceName=k;'},
            {
                "sasl.kerberos.keytab": "/dev/null",
                "sasl.kerberos.principal": "a b@B",
                "sasl.kerberos.service.name": "k",
            },
        ),
        ({"sasl.jaas.config": f"{KRB5} useTicketCache=true;"}, {"sasl.kerberos.min.time.before.relogin": "0"}),
        (
            {
                "sasl.jaas.config": f'{OAUTH} clientId="me" clientSecret="s" scope=all extension_logicalCluster="lkc";',
                "sasl.login.callback.handler.class": f"{HANDLERS}.secured.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.jwt.retriever.class": f"{HANDLERS}.ClientCredentialsJwtRetriever",
            },
            {
                "sasl.oauthbearer.client.id": "me",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.scope": "all",
                "sasl.oauthbearer.extensions": "logicalCluster=lkc",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.grant.type": "client_credentials",
            },
        ),
    ],
    ids=lambda pairs: ",".join(pairs) if isinstance(pairs, dict) else None,
)
def test_a_value_in_javas_form_is_translated_everywhere(given, translated, tmp_path):
    for way, _, found in everywhere(given, tmp_path):
        assert found == translated, way


def test_key_stores_of_pem_files_are_taken_and_others_named(tmp_path):
    pem, p12 = str(tmp_path / "both.pem"), str(tmp_path / "client.p12")
    for path in (pem, p12):
        Path(path).write_text("x")
    given = {"ssl.keystore.type": "PEM", "ssl.keystore.location": pem}
    for way, _, found in everywhere({**given, "ssl.truststore.location": pem}, tmp_path):
        where = {"ssl.certificate.location": pem, "ssl.key.location": pem, "ssl.ca.location": pem}
        assert found == where, way
    for way, _, found in everywhere({"ssl.keystore.type": "PKCS12", "ssl.keystore.location": p12}, tmp_path):
        assert found == {"ssl.keystore.location": p12}, way
    for refused in (
        {"ssl.truststore.location": "trust.jks"},
        {"ssl.truststore.location": p12, "ssl.truststore.type": "PKCS12"},
        {"ssl.keystore.location": p12, "ssl.keystore.type": "JKS"},
    ):
        for _, prefix, found in everywhere(refused, tmp_path):
            assert f"The option {prefix}{next(iter(refused))} can't be used here" in str(found)
            assert "keytool" in str(found)


@pytest.mark.parametrize(
    "value",
    [
        *("x", ";", f"{PLAIN} username", f"{PLAIN} username=alice password={SECRET}", f'{PLAIN} password="{SECRET};'),
        *(f"{PLAIN} password = = ;", f"{PLAIN}; {SCRAM};", f"{PLAIN[:-8]} mandatory password={SECRET};"),
        *(f"com.example.MyLoginModule required password={SECRET};", f"{SCRAM} tokenauth=true password={SECRET};"),
        f"software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName={SECRET};",
    ],
)
def test_a_login_that_can_not_be_read_is_named_without_its_values(value, tmp_path):
    for way, prefix, found in everywhere({"sasl.jaas.config": value}, tmp_path):
        assert f"The option {prefix}sasl.jaas.config" in str(found), way
        assert SECRET not in str(found)


def test_a_login_that_is_given_twice_is_named(tmp_path):
    for _, prefix, found in everywhere({"sasl.jaas.config": f"{PLAIN} username=a;", "sasl.username": "b"}, tmp_path):
        assert f"The option {prefix}sasl.username is wrong: it is the same as {prefix}sasl.jaas.config" in str(found)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_an_address_with_the_protocol_of_the_client_is_taken(protocol, tmp_path):
    kafka = {"kafka.security.protocol": protocol.lower()} if protocol != "PLAINTEXT" else {}
    if protocol.startswith("SASL"):
        kafka |= {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "a", "kafka.sasl.password": SECRET}
    for written in (protocol, protocol.lower()):
        servers = {"kafka.bootstrap.servers": f"{written}://a:9092, b:9093"}
        parsed = SourceOptions.parse({**CLUSTER, "subscribe": "orders", **kafka, **servers})
        assert parsed.bootstrap_servers == parsed.kafka_config["bootstrap.servers"] == "a:9092, b:9093"
    other = "SSL" if protocol != "SSL" else "SASL_SSL"
    with pytest.raises(ShareGroupError, match=rf"{other}://a:9092 .* set kafka\.security\.protocol={other}"):
        source({**kafka, "kafka.bootstrap.servers": f"{other}://a:9092"})
    own = {key.removeprefix("kafka."): value for key, value in kafka.items()}
    with pytest.raises(ShareGroupError, match=rf"set security\.protocol={other}"):
        settings(f"{other}://a:9092", None, own)


# --- commands

WITH_FILE = [path for path in COMMANDS if any("--command-config" in each.opts for each in COMMANDS[path].params)]


@pytest.mark.parametrize("path", WITH_FILE, ids=" ".join)
def test_each_command_takes_javas_keys_and_names_them(path, tmp_path, capsys):
    assert len(WITH_FILE) > 8
    jaas = f'{PLAIN} username="alice" password="{SECRET}";'
    good = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    words = [*path, *LEAST.get(path, ()), "--bootstrap-server", "localhost:1", "--command-config"]
    for wrong, says in (
        ({"metrics.num.samples": "2"}, "metrics.num.samples can't be used here: it has no meaning here"),
        ({"receive.buffer.bytes": "-5"}, "receive.buffer.bytes is wrong"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.method is missing"),
        ({"ssl.truststore.location": "trust.jks"}, "ssl.truststore.location can't be used here"),
    ):
        file = properties_file(tmp_path / "client.properties", {**good, **wrong})
        assert run([*words, file]) == 1, shlex.join(words)
        told = capsys.readouterr()
        assert says in told.err
        assert " kafka." not in told.err
        assert SECRET not in told.out + told.err
