"""Apache Kafka 0.9.0.1, the one that package registries have: a broker and its ZooKeeper, on loopback."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

OLD = {"api.version.request": "false", "broker.version.fallback": "0.9.0.1"}
_LOG = """log4j.rootLogger=WARN, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
"""


class Broker:
    """package: of npm. home: for its data."""

    def __init__(self, package: Path, home: Path) -> None:
        libraries = sorted((package / "kafka/libs").glob("*.jar"))
        left = ("javadoc", "scaladoc", "sources", "-test")
        self._classes = ":".join(str(jar) for jar in libraries if not any(word in jar.name for word in left))
        self._home, self._ports = home, [_free_port(), _free_port()]
        self._running: list[subprocess.Popen[bytes]] = []
        self.config = home / "client.properties"
        self.config.write_text(
            "# how old the broker is\n" + "".join(f"{name}={value}\n" for name, value in OLD.items())
        )
        (home / "log4j.properties").write_text(_LOG)
        (home / "zookeeper.properties").write_text(
            f"dataDir={home}/zookeeper\nclientPort={self._ports[0]}\nclientPortAddress=127.0.0.1\n"
        )
        (home / "server.properties").write_text(
            f"broker.id=0\nlisteners=PLAINTEXT://127.0.0.1:{self._ports[1]}\nadvertised.host.name=127.0.0.1\n"
            f"advertised.port={self._ports[1]}\nlog.dirs={home}/logs\nnum.partitions=4\n"
            f"zookeeper.connect=127.0.0.1:{self._ports[0]}\nzookeeper.session.timeout.ms=4000\n"
        )

    @property
    def servers(self) -> str:
        """For KAFKA_SERVERS."""
        return f"127.0.0.1:{self._ports[1]}"

    def client(self) -> dict[str, Any]:
        """Settings of a client."""
        return {"bootstrap.servers": self.servers, **OLD}

    def start(self) -> None:
        """Start what doesn't run, and wait until it answers."""
        if not self._running:
            self._java("org.apache.zookeeper.server.quorum.QuorumPeerMain", "zookeeper.properties", self._ports[0])
        self._java("kafka.Kafka", "server.properties", self._ports[1])

    def kill(self) -> None:
        """SIGKILL to the broker."""
        broker = self._running.pop()
        broker.kill()
        broker.wait()

    def hang(self) -> None:
        """The broker holds its connections, and answers no more."""
        self._running[-1].send_signal(signal.SIGSTOP)

    def close(self) -> None:
        """End both."""
        for one in reversed(self._running):
            one.send_signal(signal.SIGKILL)
            one.wait()

    def _java(self, main: str, properties: str, port: int) -> None:
        words = ["java", "-Xmx192m", f"-Dlog4j.configuration=file:{self._home}/log4j.properties", "-cp", self._classes]
        until = time.monotonic() + 120
        while time.monotonic() < until:  # ZooKeeper takes a killed broker for a living one until its session ends
            with open(self._home / f"{main}.log", "ab") as log:
                one = subprocess.Popen(
                    [*words, main, str(self._home / properties)], stdout=log, stderr=log, cwd=self._home
                )
            while one.poll() is None and time.monotonic() < until:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    time.sleep(3)  # the door opens before the broker is known to ZooKeeper, or refused
                    if one.poll() is None:
                        self._running.append(one)
                        return
                time.sleep(0.1)
            one.kill()
            one.wait()
        raise AssertionError((self._home / f"{main}.log").read_text()[-2000:])


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
