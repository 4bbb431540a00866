"""A Kafka to test with: the one that is given, a real broker of our own, or librdkafka's mock.

PENSTOCK_KAFKA_BOOTSTRAP names one that runs. Else Apache Kafka is started in KRaft mode, where Java
17 and its jars are to be had: from PENSTOCK_KAFKA_JARS, or from Maven, once, into the user's cache.
Beside the jars is what all starts have in common: formatted data, Java's archive of classes.
Else the mock cluster inside the client library takes its place, and it alone if PENSTOCK_TEST_KAFKA
is `mock`. All tests pass on each of them. Leaves no process behind.
"""

import ctypes
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from time import monotonic
from typing import IO, Any, Protocol

import trustme
from confluent_kafka import KafkaError, KafkaException, cimpl
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.ports import free_port

KAFKA_VERSION = "4.3.1"
FETCH_SECONDS = 60.0  # Forty megabytes; who has a slower line than that gets the mock.
WAIT_SECONDS = 120.0  # A broker takes three seconds to start on an idle machine.
CLUSTER = "cGVuc3RvY2stdGVzdHMtMQ"  # Any sixteen bytes.
USERNAME, PASSWORD = "penstock", "not a secret: tests have it"
# Names the run of the tests: pytest-xdist tells all its processes the same name.
RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID") or token_hex(16)
DATA, CLASSES = "data", "classes.jsa"
JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Broker(Protocol):
    """What a test asks of a broker; `name` says which one it is."""

    @property
    def name(self) -> str: ...
    @property
    def bootstrap(self) -> str: ...

    def create_topic(self, topic: str, partitions: int) -> None: ...
    def refuse(self, topic: str) -> None:
        """Take no more messages without a key into the topic."""
        ...

    def permit(self, topic: str) -> None: ...
    def kill(self) -> None: ...
    def revive(self) -> None: ...


@contextmanager
def running_broker(folder: Path, *, own: bool = False) -> Generator[Broker]:
    """Run a broker while the body runs; `own` asks for one that may be killed."""
    chosen = os.environ.get("PENSTOCK_TEST_KAFKA", "")
    given = os.environ.get("PENSTOCK_KAFKA_BOOTSTRAP")
    if given and not own and chosen != "mock":
        yield GivenBroker(given)
        return
    broker = MockBroker() if chosen == "mock" else real_or_mock(folder)
    try:
        yield broker
    finally:
        broker.end()


def real_or_mock(folder: Path) -> "RealBroker | MockBroker":
    jars = find_jars()
    try:
        return MockBroker() if jars is None else real(folder, jars)
    except NoBroker:
        return MockBroker()


def real(folder: Path, jars: Path) -> "RealBroker":
    """Start a broker in a folder; raises NoBroker."""
    kept = prepared(jars)
    shutil.copytree(kept / DATA, folder / DATA)
    broker = RealBroker(folder, jars, (f"-XX:SharedArchiveFile={kept / CLASSES}",))
    try:
        broker.revive()
    except NoBroker:
        # Java ignores an archive that is missing, and does not start with one that is damaged.
        broker.java_options = ()
        broker.revive()
    return broker


class NoBroker(Exception):
    """Kafka does not start here: another Java, say, or jars that are no good."""


# ------------------------------------------------------------------------------ one that runs


@dataclass(frozen=True, slots=True)
class GivenBroker:
    """A broker that somebody else runs; it is never killed."""

    bootstrap: str
    name: str = "the broker at PENSTOCK_KAFKA_BOOTSTRAP"

    def create_topic(self, topic: str, partitions: int) -> None:
        create_topic(self.bootstrap, topic, partitions)

    def refuse(self, topic: str) -> None:
        set_policy(self.bootstrap, topic, "compact")

    def permit(self, topic: str) -> None:
        set_policy(self.bootstrap, topic, "delete")

    def kill(self) -> None:
        raise AssertionError("it is not ours")

    def revive(self) -> None:
        raise AssertionError("it is not ours")


# -------------------------------------------------------------------------------- a real one


@dataclass(slots=True)
class RealBroker:
    """Apache Kafka, broker and controller in one process.

    It has two listeners: a plain one, and one with TLS for the account of the tests.
    """

    folder: Path
    jars: Path
    java_options: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    secure_port: int = field(default_factory=free_port)
    name: str = f"Apache Kafka {KAFKA_VERSION}"
    _process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.ca)
        self._keystore.write_bytes(keystore(authority.issue_cert("localhost")))
        self._properties.write_text("\n".join(self._settings()), encoding="ascii")

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def secure_bootstrap(self) -> str:
        return f"localhost:{self.secure_port}"

    @property
    def ca(self) -> Path:
        """The certificate of the authority that signed the certificate of the secure listener."""
        return self.folder / "ca.pem"

    @property
    def _keystore(self) -> Path:
        return self.folder / "server.pem"

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def format(self) -> None:
        """Make the data of a new broker, with the account of the tests."""
        account = f"SCRAM-SHA-512=[name={USERNAME},password={PASSWORD}]"
        format_data = ("format", "-t", CLUSTER, "--add-scram", account, "-c")
        if self._java("kafka.tools.StorageTool", *format_data).wait(WAIT_SECONDS) != 0:
            raise NoBroker

    def create_topic(self, topic: str, partitions: int) -> None:
        create_topic(self.bootstrap, topic, partitions)

    def refuse(self, topic: str) -> None:
        set_policy(self.bootstrap, topic, "compact")

    def permit(self, topic: str) -> None:
        set_policy(self.bootstrap, topic, "delete")

    def stop(self) -> None:
        """End it as an operator does, which is when Java writes an archive."""
        assert self._process is not None, "it does not run"
        self._process.terminate()
        self._process.wait(WAIT_SECONDS)
        self._process = None

    def kill(self) -> None:
        """End it as a crash does (kill -9); harmless if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT_SECONDS)
            self._process = None

    def revive(self) -> None:
        """Start it on the same port and return once it answers."""
        assert self._process is None, "it runs already"
        self._process = self._java("kafka.Kafka")
        try:
            wait_until_up(self.bootstrap, self._process)
        except NoBroker:
            self.kill()
            raise

    def end(self) -> None:
        self.kill()

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        java = (*JAVA, *self.java_options, "-cp", f"{self.jars}/*")
        with (self.folder / "broker.log").open("ab") as log:
            return subprocess.Popen(
                [*java, *arguments, str(self._properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )

    def _settings(self) -> Iterator[str]:
        controller = free_port()
        yield "process.roles=broker,controller"
        yield "node.id=1"
        yield f"controller.quorum.voters=1@127.0.0.1:{controller}"
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},SECURE://127.0.0.1:{self.secure_port}"
        yield f"listeners={listeners},CONTROLLER://127.0.0.1:{controller}"
        yield f"advertised.listeners=PLAINTEXT://{self.bootstrap},SECURE://{self.secure_bootstrap}"
        yield "controller.listener.names=CONTROLLER"
        protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL"
        yield f"listener.security.protocol.map={protocols}"
        yield from self._secure_listener()
        yield f"log.dirs={self.folder / DATA}"
        for log in ("offsets.topic", "transaction.state.log"):
            yield f"{log}.replication.factor=1"
            yield f"{log}.num.partitions=1"
        yield "transaction.state.log.min.isr=1"
        # Tests have no time: groups form at once, and a member may say how soon it is missed.
        yield "group.initial.rebalance.delay.ms=0"
        yield "group.min.session.timeout.ms=100"
        # A busy machine may delay a heartbeat for seconds, and a broker without one has no topics.
        yield "broker.session.timeout.ms=6000"
        yield "broker.heartbeat.interval.ms=1000"
        # With the defaults, an idle broker uses three times as much CPU time.
        yield "metadata.max.idle.interval.ms=0"
        yield "log.cleaner.enable=false"
        yield "num.network.threads=1"
        yield "num.io.threads=2"

    def _secure_listener(self) -> Iterator[str]:
        modules = "org.apache.kafka.common.security"
        plain = f'{modules}.plain.PlainLoginModule required user_{USERNAME}="{PASSWORD}";'
        scram = f"{modules}.scram.ScramLoginModule required;"
        yield "ssl.keystore.type=PEM"
        yield f"ssl.keystore.location={self._keystore}"
        yield "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512"
        yield f"listener.name.secure.plain.sasl.jaas.config={plain}"
        yield f"listener.name.secure.scram-sha-512.sasl.jaas.config={scram}"


def keystore(certificate: trustme.LeafCert) -> bytes:
    """Return a key and its certificate in the only form of PEM that Java reads."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), password=None)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return text + b"".join(part.bytes() for part in certificate.cert_chain_pems)


def find_jars() -> Path | None:
    """Return the folder of Kafka's jars, fetched if need be, or None: they cannot be had."""
    if shutil.which("java") is None:
        return None
    given = os.environ.get("PENSTOCK_KAFKA_JARS")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(given) if given else cache / "penstock" / f"kafka-{KAFKA_VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / "fetching.lock") as lock:
        lock.seek(0)
        # Without a network a try takes a minute, so all processes of a run share one.
        if not folder.is_dir() and lock.read() != RUN:
            fetch_jars(folder)
            lock.truncate(0)
            lock.write(RUN)
    return folder if folder.is_dir() else None


def fetch_jars(folder: Path) -> None:
    """Ask Maven for Kafka and all that it stands on. If that fails, the folder is not there."""
    if shutil.which("mvn") is None:
        return
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        work = Path(name)
        (work / "pom.xml").write_text(POM, encoding="ascii")
        command = [
            *("mvn", "-q", "-B", f"-Dmaven.repo.local={work}/m2"),
            *("dependency:copy-dependencies", f"-DoutputDirectory={work}/jars"),
        ]
        try:
            subprocess.run(
                command, cwd=work, check=True, capture_output=True, timeout=FETCH_SECONDS
            )
        except (subprocess.SubprocessError, OSError):
            return
        (work / "jars").rename(folder)


def prepared(jars: Path) -> Path:
    """Return a folder beside the jars with what all starts have in common; made once.

    It has formatted data and, if Java can make one, an archive of the classes that a broker loads.
    Without them, a start takes twice the CPU time. Raises NoBroker if data cannot be formatted.
    """
    java = Path(shutil.which("java") or "java").resolve()
    of = repr((jars, java, java.stat().st_mtime_ns, JAVA, CLUSTER, USERNAME, PASSWORD))
    folder = jars.with_name(f"kafka-prepared-{sha256(of.encode()).hexdigest()[:16]}")
    with locked(jars.with_name("preparing.lock")):
        if not folder.is_dir():
            prepare(folder, jars)
    return folder


def prepare(folder: Path, jars: Path) -> None:
    """Format data, keep a copy, and run a broker on it from start to end."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        work, kept = Path(name), Path(name, "kept")
        broker = RealBroker(work, jars)
        broker.format()
        shutil.copytree(work / DATA, kept / DATA)
        broker.java_options = (f"-XX:ArchiveClassesAtExit={kept / CLASSES}",)
        try:
            broker.revive()
            broker.create_topic("any", 1)
            broker.stop()
        except NoBroker:
            pass  # This Java may have no such option; each broker loads its classes by itself.
        finally:
            broker.kill()
        kept.rename(folder)


@contextmanager
def locked(path: Path) -> Generator[IO[str]]:
    """Hold a lock: of two test processes, the second one waits for what the first one makes."""
    with path.open("a+", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


POM = f"""
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId>
  <artifactId>kafka-for-tests</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{KAFKA_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


# ---------------------------------------------------------------------------------- the mock


class MockBroker:
    """The broker that librdkafka carries for tests of its own: a real one as seen from outside."""

    name = "the mock cluster of librdkafka"

    def __init__(self) -> None:
        self._library = library()
        why = ctypes.create_string_buffer(512)
        options = self._library.rd_kafka_conf_new()
        self._library.rd_kafka_conf_set(options, b"log_level", b"0", why, len(why))
        self._client = self._library.rd_kafka_new(0, options, why, len(why))
        assert self._client, why.value
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, 1)
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)

    @property
    def bootstrap(self) -> str:
        return self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def create_topic(self, topic: str, partitions: int) -> None:
        error = self._library.rd_kafka_mock_topic_create(
            self._cluster, topic.encode(), partitions, 1
        )
        assert error == 0, f"the mock makes no topic: {error}"

    def refuse(self, topic: str) -> None:
        self._set_error(topic, KafkaError.INVALID_RECORD)

    def permit(self, topic: str) -> None:
        self._set_error(topic, KafkaError.NO_ERROR)

    def _set_error(self, topic: str, code: int) -> None:
        self._library.rd_kafka_mock_topic_set_error(self._cluster, topic.encode(), code)

    def kill(self) -> None:
        """Close all connections and refuse new ones; it forgets nothing."""
        self._library.rd_kafka_mock_broker_set_down(self._cluster, 1)

    def revive(self) -> None:
        self._library.rd_kafka_mock_broker_set_up(self._cluster, 1)

    def end(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)


def library() -> Any:
    """Return the C library that the client brings along, with the types of what we call."""
    loaded = ctypes.CDLL(cimpl.__file__)
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    returns = {
        "rd_kafka_conf_new": pointer,
        "rd_kafka_new": pointer,
        "rd_kafka_mock_cluster_new": pointer,
        "rd_kafka_mock_cluster_bootstraps": text,
    }
    takes = {
        "rd_kafka_conf_new": [],
        "rd_kafka_conf_set": [pointer, text, text, text, ctypes.c_size_t],
        "rd_kafka_new": [number, pointer, text, ctypes.c_size_t],
        "rd_kafka_destroy": [pointer],
        "rd_kafka_mock_cluster_new": [pointer, number],
        "rd_kafka_mock_cluster_destroy": [pointer],
        "rd_kafka_mock_cluster_bootstraps": [pointer],
        "rd_kafka_mock_group_initial_rebalance_delay_ms": [pointer, ctypes.c_int32],
        "rd_kafka_mock_topic_create": [pointer, text, number, number],
        "rd_kafka_mock_topic_set_error": [pointer, text, number],
        "rd_kafka_mock_broker_set_down": [pointer, ctypes.c_int32],
        "rd_kafka_mock_broker_set_up": [pointer, ctypes.c_int32],
    }
    for name, types in takes.items():
        getattr(loaded, name).argtypes = types
        getattr(loaded, name).restype = returns.get(name, number)
    return loaded


# --------------------------------------------------------------------------------------------


def create_topic(
    bootstrap: str, topic: str, partitions: int, *, message_bytes_max: int | None = None
) -> None:
    """Create a topic. A limit that is set later takes effect at some time after the answer."""
    limit = {} if message_bytes_max is None else {"max.message.bytes": str(message_bytes_max)}
    client = administrator(bootstrap)
    asked = client.create_topics([NewTopic(topic, num_partitions=partitions, config=limit)])
    asked[topic].result(WAIT_SECONDS)


def set_policy(bootstrap: str, topic: str, policy: str) -> None:
    """Say what becomes of old messages; a topic that is compacted takes none without a key."""
    client = administrator(bootstrap)
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    client.incremental_alter_configs([resource])[resource].result(WAIT_SECONDS)


def wait_until_up(bootstrap: str, process: subprocess.Popen[bytes]) -> None:
    """Return once the broker answers; each question waits for a while by itself."""
    ends_at = monotonic() + WAIT_SECONDS
    client = administrator(bootstrap)
    while True:
        try:
            client.list_topics(timeout=1)
        except KafkaException as silent:
            if process.poll() is not None or monotonic() > ends_at:
                raise NoBroker from silent
        else:
            return


def administrator(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
