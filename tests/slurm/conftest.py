"""A Slurm of one node, from Debian's packages, for ``make slurm-check``, which sets TRACKERS_SLURM and collects it."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

collect_ignore = [] if "TRACKERS_SLURM" in os.environ else ["test_slurm.py"]

CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
CredType=cred/munge
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=10
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=2,bf_interval=5
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=1000 State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF
"""
DAEMONS = ("munged", "slurmctld", "slurmd")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Cluster:
    """The node. place: its files. work: where jobs run and write ``out.<job>``."""

    def __init__(self, place: Path, work: Path) -> None:
        self.place, self.work = place, work
        self.environment = {**os.environ, "SLURM_CONF": str(place / "slurm.conf")}
        self._begun: list[subprocess.Popen[bytes]] = []

    def begin(self) -> None:
        """Start the three daemons in the foreground, as children of this process, and wait for the node."""
        for folder in ("state", "spool", "munge"):
            (self.place / folder).mkdir()
        (self.place / "munge").chmod(0o700)
        key = self.place / "munge/key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        (self.place / "slurm.conf").write_text(
            CONFIG.format(host=socket.gethostname(), place=self.place, ports=[_free_port(), _free_port()])
        )
        munge = {name: f"--{name}={self.place}/munge/{name}" for name in ("log-file", "seed-file", "pid-file")}
        self._start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.place}/munge.socket",
                    *munge.values())  # fmt: skip
        self.until(lambda: (self.place / "munge.socket").exists(), 30)
        self._start("slurmctld", "-D", "-c")
        self._start("slurmd", "-D", "-N", socket.gethostname())
        self.until(lambda: "idle" in self.command("sinfo", "--noheader", "--format=%T"), 60)

    def end(self) -> None:
        """End all jobs and the daemons, which end whatever fails before."""
        self.work = self.place  # the last test's folder is deleted with that test
        try:
            subprocess.run(["scancel", "--user=root"], env=self.environment, cwd=self.place, check=False)
            self.until(lambda: not self.command("squeue", "--noheader"), 60)
        finally:
            for process in reversed(self._begun):
                process.send_signal(signal.SIGTERM)
            for process in self._begun:
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _start(self, name: str, *arguments: str) -> None:
        with (self.place / f"{name}.out").open("wb") as said:
            self._begun.append(
                subprocess.Popen([name, *arguments], env=self.environment, stdout=said, stderr=subprocess.STDOUT)
            )

    def command(self, *words: str) -> str:
        """What one of Slurm's commands prints."""
        done = subprocess.run(words, env=self.environment, cwd=self.work, capture_output=True, text=True, check=False)
        return done.stdout

    def submit(self, script: str, *options: str) -> str:
        """``sbatch`` of a script's text; the job's id."""
        path = self.work / "job.sh"
        path.write_text(script)
        done = subprocess.run(
            ["sbatch", "--parsable", "--output=out.%j", *options, str(path)],
            env=self.environment, cwd=self.work, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def state(self, job: str) -> str:
        """``RUNNING``, ``COMPLETED``, …"""
        shown = self.command("scontrol", "--oneliner", "show", "job", job)
        return next((word.partition("=")[2] for word in shown.split() if word.startswith("JobState=")), "")

    def said(self, job: str) -> str:
        """What a job has printed so far."""
        path = self.work / f"out.{job}"
        return path.read_text() if path.exists() else ""

    def until(self, what: Callable[[], object], seconds: float = 120) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + seconds
        while not what():
            if time.monotonic() > deadline:
                logs = "\n".join(path.read_text()[-2000:] for path in self.place.glob("*.log"))
                raise AssertionError(f"not within {seconds} s; {self.command('squeue')}\n{logs}")
            time.sleep(0.2)


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The node, for all tests."""
    lacking = [
        name for name in (*DAEMONS, "sbatch") if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None
    ]
    if lacking:
        pytest.fail(f"needs {', '.join(lacking)}: apt-get install slurm-wlm munge")
    os.environ["PATH"] += ":/usr/sbin"
    place = Path(f"/tmp/slurm-{secrets.token_hex(4)}")  # a socket's path is short
    place.mkdir(mode=0o755)
    found = Cluster(place, tmp_path_factory.mktemp("work"))
    try:
        found.begin()
        yield found
    finally:
        try:
            found.end()
        finally:
            shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def cluster(node: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The node, with a directory of this test's own, and ``python`` being this one."""
    node.work = tmp_path
    node.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    node.environment["HOME"] = str(tmp_path)
    node.environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    monkeypatch.chdir(tmp_path)
    return node
