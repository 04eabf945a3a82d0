"""Identity of this process (machine, rank, user, git), and the watching of another. Reads files; starts no process.

``Watched`` is a process that isn't this one's child. A process's exit code is its parent's to ask for (``waitpid``).
Linux tells others, too: of one that its parent hasn't asked for yet in ``/proc/<pid>/stat`` (field 52), of others,
since 6.15, by ``PIDFD_GET_INFO`` on a pidfd that was opened while it lived.

Sources: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html,
https://github.com/torvalds/linux/blob/v6.15/include/uapi/linux/pidfd.h

Waiting until a descriptor can be read: ``select`` alone fails for descriptors from 1024 on.
"""

from __future__ import annotations

import errno
import getpass
import os
import re
import select
import socket
import stat
import struct
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from trackers.support import confined
from trackers.support.clock import monotonic, unix_time
from trackers.support.interruption import pass_on, suppress
from trackers.support.redaction import mask_text

RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
WORLD_SIZE_VARIABLES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
LAUNCHER_VARIABLES = frozenset(
    {*RANK_VARIABLES, *WORLD_SIZE_VARIABLES, "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK"}
    | {"MASTER_ADDR", "MASTER_PORT", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "SLURM_NODEID"}
)
"""Variables that a launcher sets for each rank; helper processes must not inherit them."""
GIT_BYTES = 64 * 1024 * 1024
"""Maximum size of a file of a Git repository that is read; ``packed-refs`` has 60 bytes for each branch and tag."""
_FIRST_NAMESPACE = f"pid:[{0xEFFFFFFC}]"
"""include/linux/proc_ns.h: PROC_PID_INIT_INO, in which all processes of the machine are seen."""
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def host() -> str:
    """This machine's name."""
    return socket.gethostname()


def boot_id() -> str:
    """Changes when the machine restarts, so that a pid of an earlier boot isn't taken for a living process."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError as error:
        pass_on(error)
    try:
        import psutil

        return f"boot-{int(psutil.boot_time())}"
    except (ImportError, OSError) as error:
        pass_on(error)
        return f"node-{uuid.getnode():x}"


def pid_namespace() -> str:
    """The PID namespace that this process's pids are of; "" where there are none.

    Containers on one host with its name (``--network host``, ``hostNetwork``) differ in it alone. A namespace's number
    is used again only when its processes are gone.
    """
    return _namespace("pid")


def clock_id() -> str:
    """Which monotonic clock this process has: that of its boot, and of its time namespace."""
    return f"{boot_id()} {_namespace('time')}"


def uptime() -> float:
    """Seconds on that clock, read where no library that shifts a program's clocks (faketime, freezegun) does."""
    try:
        return float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError) as error:
        pass_on(error)
        return monotonic()


def _namespace(kind: str) -> str:
    try:
        return str(os.stat(f"/proc/self/ns/{kind}").st_ino)
    except OSError as error:
        pass_on(error)
        return ""


class MachineId(NamedTuple):
    """Where a pid means something: host name, boot and PID namespace."""

    host: str
    boot_id: str
    pid_namespace: str


def machine() -> MachineId:
    """The machine that this process is on."""
    return MachineId(host(), boot_id(), pid_namespace())


class Recorded(Protocol):
    """What says of which machine it is. pid_namespace: "" also where an earlier version wrote it."""

    @property
    def host(self) -> str: ...

    @property
    def boot_id(self) -> str: ...

    @property
    def pid_namespace(self) -> str: ...


def machine_of(recorded: Recorded) -> MachineId:
    """The machine that something is of."""
    return MachineId(recorded.host, recorded.boot_id, recorded.pid_namespace)


def is_here(recorded: Recorded) -> bool:
    """Whether something is of the machine that this process is on, so that its pid says whether it lives.

    Where no namespace was recorded, host name and boot decide.
    """
    there, here = machine_of(recorded), machine()
    return there == (here if there.pid_namespace else here._replace(pid_namespace=""))


def process_start(pid: int) -> float:
    """When a process began, in its machine's own units (Linux: clock ticks since boot); 0.0 if it isn't there.

    With the pid it names a process for good: a pid is used again, a pid with its start is not.
    """
    try:
        text = Path(f"/proc/{number_in_proc(pid)}/stat").read_text()
        fields = text[text.rindex(")") + 2 :].split()
        return 0.0 if fields[0] in "ZX" else float(fields[19])
    except (OSError, ValueError, IndexError) as error:
        pass_on(error)
    if os.path.isdir("/proc/self"):
        return 0.0
    try:
        import psutil

        return float(psutil.Process(pid).create_time())
    except Exception as error:  # psutil's own tree, or none installed: the process can't be seen
        pass_on(error)
        return 0.0


def number_in_proc(pid: int) -> int:
    """A process's number in ``/proc``, which may be of another PID namespace than this process; 0: it isn't there.

    Source: https://man7.org/linux/man-pages/man2/pidfd_open.2.html ("Pid" in ``/proc/self/fdinfo``)
    """
    try:
        if os.readlink("/proc/self") == str(os.getpid()):
            return pid
    except OSError as error:
        pass_on(error)
        return pid
    if pid == os.getpid():
        return int(os.readlink("/proc/self"))
    fd = open_pidfd(pid)
    if fd < 0:
        return 0
    try:
        fields = dict(line.split(":", 1) for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines())
        return max(0, int(fields["Pid"]))
    except (OSError, ValueError, KeyError) as error:
        pass_on(error)
        return 0
    finally:
        os.close(fd)


def alive(pid: int, start: float) -> bool:
    """Is the process with this pid and start still running on this machine?"""
    return pid > 0 and start > 0 and process_start(pid) == start


def waits_for_this_alone(pid: int) -> bool:
    """Whether a process waits for a child to end, and this one, which it was given as an orphan, is its only child."""
    if os.getppid() != pid:
        return False
    children, waits = set(), False
    try:
        for thread in Path(f"/proc/{number_in_proc(pid)}/task").iterdir():
            children.update((thread / "children").read_text().split())
            waits = waits or (thread / "wchan").read_text() == "do_wait"
    except OSError as error:
        pass_on(error)
        return False
    return waits and children == {str(number_in_proc(os.getpid()))}


def open_files() -> set[str] | None:
    """Paths that processes of this account have open (for root: of all); None where not all of these can be seen: on
    other systems than Linux, and in a PID namespace, as containers have it."""
    try:
        if os.readlink("/proc/self/ns/pid") != _FIRST_NAMESPACE:
            return None
    except OSError as error:
        pass_on(error)
        return None
    paths = set()
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):  # another's process, or it has ended
            for descriptor in os.listdir(folder):
                with suppress(OSError):
                    paths.add(os.readlink(folder / descriptor))
    return paths


def rank(environ: Mapping[str, str] | None = None) -> int:
    """This process's rank: from the launcher's variables, else torch.distributed when initialised, else 0."""
    environ = os.environ if environ is None else environ
    for name in RANK_VARIABLES:
        if _is_number(environ.get(name)):
            # A plain `python` inside an sbatch allocation has SLURM_PROCID=0, which is right: one task.
            return int(environ[name])
    distributed = torch_distributed()
    return int(distributed.get_rank()) if distributed else 0


def world_size(environ: Mapping[str, str] | None = None) -> int:
    """How many ranks the launcher started; 1 if none did."""
    environ = os.environ if environ is None else environ
    if not any(_is_number(environ.get(name)) for name in RANK_VARIABLES):
        distributed = torch_distributed()
        return int(distributed.get_world_size()) if distributed else 1
    for name in WORLD_SIZE_VARIABLES:
        if _is_number(environ.get(name)):
            return max(1, int(environ[name]))
    return 1


def torch_distributed() -> Any:
    """The module ``torch.distributed`` where it is initialised; None else, without loading it."""
    module = sys.modules.get("torch.distributed")
    try:
        return module if module is not None and module.is_available() and module.is_initialized() else None
    except Exception as error:  # a half-imported torch: as if it weren't there
        pass_on(error)
        return None


def _is_number(text: str | None) -> bool:
    return text is not None and re.fullmatch(r"\d{1,9}", text.strip()) is not None


def user() -> str:
    """The user's name; "" where the system knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError) as error:
        pass_on(error)
        return ""


def program() -> tuple[str, list[str]]:
    """The training script (absolute where it is a file) and its arguments; ``-m package`` as such.

    Of an archive or a directory that Python was given (``python app.pyz``) it is that.
    """
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name == "__main__":
        return os.path.abspath(sys.argv[0]), list(sys.argv[1:])
    if spec is not None and spec.name:
        name = spec.name.removesuffix(".__main__")
        return f"-m {name}", list(sys.argv[1:])
    path = getattr(main, "__file__", None)
    if path and not path.startswith("<"):  # <stdin>
        return os.path.abspath(path), list(sys.argv[1:])
    return ("<notebook>" if in_notebook() else "<python>"), []


def in_notebook() -> bool:
    """Runs inside a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and "IPKernelApp" in getattr(shell, "config", {})


def git(directory: str) -> dict[str, Any]:
    """Commit, branch, remote and root of the repository around ``directory``, read from its files; {} if none.

    The repository is data: references that lead out of it are ignored, and pipes and devices aren't read.
    """
    for root in (Path(directory), *Path(directory).parents):
        dot_git = root / ".git"
        if dot_git.exists():
            try:
                return {"root": str(root), **_git_head(dot_git)}
            except (OSError, ValueError) as error:
                pass_on(error)
                return {}
    return {}


def _git_head(dot_git: Path) -> dict[str, Any]:
    if dot_git.is_file():  # a worktree or submodule
        dot_git = (dot_git.parent / _git_file(dot_git).removeprefix("gitdir:").strip()).resolve()
    common = dot_git
    if (dot_git / "commondir").exists():
        common = (dot_git / _git_file(dot_git / "commondir").strip()).resolve()
    state: dict[str, Any] = {}
    head = _git_file(dot_git / "HEAD").strip()
    if head.startswith("ref: "):
        reference = head.removeprefix("ref: ")
        if not (reference.startswith("refs/") and confined.is_inside(reference)):
            raise ValueError(f"no reference: {reference!r:.80}")
        state["branch"] = reference.removeprefix("refs/heads/")
        commit = _git_reference(common, reference)
    else:
        commit = head
    if _COMMIT.fullmatch(commit):
        state["commit"] = commit
    remote = _git_remote(common / "config")
    if remote:
        state["remote"] = remote
    return state


def _git_file(path: Path) -> str:
    """A small file of a repository.

    Raises:
        OSError: it is no regular file, or a long one. UnicodeDecodeError: it is no text.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "isn't a regular file", str(path))
        content = file.read(GIT_BYTES + 1)
    if len(content) > GIT_BYTES:
        raise OSError(errno.EFBIG, f"is longer than {GIT_BYTES:,} bytes", str(path))
    return content.decode()


def _git_reference(common: Path, reference: str) -> str:
    try:
        return _git_file(common / reference).strip()
    except OSError as error:
        pass_on(error)
    try:
        for line in _git_file(common / "packed-refs").splitlines():
            if line.endswith(" " + reference):
                return line.split(" ", 1)[0]
    except OSError as error:
        pass_on(error)
    return ""


def _git_remote(config: Path) -> str:
    in_origin = False
    for line in _git_file(config).splitlines() if config.exists() else []:
        text = line.strip()
        if text.startswith("["):
            in_origin = text == '[remote "origin"]'
        elif in_origin and text.startswith("url"):
            url = text.partition("=")[2].strip()
            # Credentials in the address stay out; a password may have any sign, "@" and "/" too.
            scheme, separator, rest = url.partition("://")
            login = re.match(r"\S*@(?=[\w\[])", rest) if separator else None
            return mask_text(scheme + separator + (rest[login.end() :] if login else rest))
    return ""


class Clock:
    """Unix time that never steps: anchored once, then carried by the monotonic clock."""

    def __init__(self) -> None:
        self.offset = unix_time() - monotonic()

    def now(self) -> float:
        """Unix seconds."""
        return self.offset + monotonic()


_INFO = struct.Struct("=QQ11Ii")
"""``struct pidfd_info`` of 6.13, whose last field was filled from 6.15 on."""
_GET_INFO = 0xC040FF0B
_HAS_EXIT_CODE = 1 << 3


class Watched:
    """A process.

    Args:
        pid, start: which (``identity.process_start``).
        pidfd: a descriptor of it that was opened while it lived; taken over. -1: one is opened here, if it still lives.
    """

    def __init__(self, pid: int, start: float, pidfd: int = -1) -> None:
        self.pid = pid
        self.start = start
        self._fd = pidfd if pidfd >= 0 else _open_checked(pid, start)
        self._code: int | None = None

    def alive(self) -> bool:
        """Whether it runs. One that has exited doesn't, though its parent may not have asked for its exit code yet."""
        return not readable(self._fd, 0.0) if self._fd >= 0 else alive(self.pid, self.start)

    def wait(self, timeout_s: float, *others: int) -> None:
        """Wait until it exits, or another descriptor has something to read, up to a timeout. -1: none."""
        fds = [fd for fd in (self._fd, *others) if fd >= 0]
        if not fds:
            time.sleep(timeout_s)
        elif self._fd in readable_ones(fds, timeout_s):
            time.sleep(0.01)  # it stays readable

    def exit_code(self) -> int | None:
        """Its exit code, negative for the signal that ended it; None while it lives or where nobody can tell."""
        if self._code is None and not self.alive():
            for ask in (
                self._reaped_status,
                self._unreaped_status,
                self._reaped_status,
            ):  # its parent may ask for it in between
                status = ask()
                if status is not None:
                    self._code = os.waitstatus_to_exitcode(status)
                    break
        return self._code

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _reaped_status(self) -> int | None:
        """The wait status of a process that its parent has reaped."""
        if self._fd < 0:
            return None
        try:
            import fcntl

            info = bytearray(_INFO.size)
            _INFO.pack_into(info, 0, _HAS_EXIT_CODE, *[0] * 13)
            fcntl.ioctl(self._fd, _GET_INFO, info)
        except (ImportError, OSError) as error:
            pass_on(error)
            return None
        fields = _INFO.unpack(info)
        return int(fields[-1]) if fields[0] & _HAS_EXIT_CODE else None

    def _unreaped_status(self) -> int | None:
        """The wait status of a process that its parent hasn't reaped."""
        try:
            text = Path(f"/proc/{number_in_proc(self.pid)}/stat").read_text()
            fields = text[text.rindex(")") + 2 :].split()
            return int(fields[49]) if fields[0] in "ZX" and float(fields[19]) == self.start else None
        except (OSError, ValueError, IndexError) as error:
            pass_on(error)
            return None


def open_pidfd(pid: int) -> int:
    """A descriptor of a process, not inherited; -1 where there is no such process or no such thing."""
    if not hasattr(os, "pidfd_open"):
        return -1
    try:
        return int(os.pidfd_open(pid))
    except OSError as error:
        pass_on(error)
        return -1


def _open_checked(pid: int, start: float) -> int:
    fd = open_pidfd(pid)
    if fd < 0:
        return -1
    if process_start(pid) in (0.0, start):  # it may have exited by now; not where the pid is another's
        return fd
    os.close(fd)
    return -1


def readable(fd: int, timeout_s: float) -> bool:
    """Wait until ``fd`` has something to read or has ended, at most ``timeout_s`` seconds; whether it has."""
    return bool(readable_ones([fd], timeout_s))


def readable_ones(fds: Sequence[int], timeout_s: float) -> list[int]:
    """The same of several: wait until one of them has."""
    if not hasattr(select, "poll"):
        return select.select(fds, [], [], timeout_s)[0]
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(max(timeout_s, 0) * 1000)]


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def give_back_memory() -> bool:
    """Give what this process has freed back to the system, where its C library can (glibc); takes a millisecond."""
    import ctypes

    with suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).malloc_trim(0))
    return False
