"""The container that a run ran in, and what launched its ranks.

Sources: https://apptainer.org/docs/user/main/environment_and_metadata.html (APPTAINER_CONTAINER),
https://docs.podman.io/en/latest/markdown/podman-run.1.html (/run/.containerenv), https://docs.wandb.ai (WANDB_DOCKER).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from trackers.provenance.manifest import Launcher
from trackers.support.interruption import pass_on
from trackers.support.redaction import mask_argv, mask_text

LAUNCHERS = {
    "torchrun": "torch.distributed.run",
    "torch.distributed.run": "torch.distributed.run",
    "torch.distributed.launch": "torch.distributed.launch",
    "accelerate": "accelerate.commands.accelerate_cli",
    "accelerate.commands.accelerate_cli": "accelerate.commands.accelerate_cli",
    "accelerate.commands.launch": "accelerate.commands.launch",
}
"""Launchers whose command line starts all ranks of a machine, by program or module, and how each is started as one."""
_LONGEST = 65536
_IMAGE = re.compile(r'^(image|imageid|name|engine)="(.{0,400}?)"$', re.M)


def container(environ: Mapping[str, str] | None = None, root: Path = Path("/")) -> dict[str, str]:
    """``kind`` (docker, podman, apptainer, …) and ``image``, "" where the container doesn't say; {} outside of one."""
    environ = os.environ if environ is None else environ
    kind, image = "", ""
    for name, what in (("APPTAINER_CONTAINER", "apptainer"), ("SINGULARITY_CONTAINER", "singularity")):
        if environ.get(name):
            kind, image = what, environ[name]
            break
    content = _text(root / "run/.containerenv")
    if not kind and content is not None:
        fields = dict(_IMAGE.findall(content))
        kind, image = "podman", fields.get("image", "")
    if not kind and (root / ".dockerenv").exists():
        kind = "docker"
    if not kind and environ.get("KUBERNETES_SERVICE_HOST"):
        kind = "kubernetes"
    image = environ.get("TRACKER_CONTAINER") or environ.get("WANDB_DOCKER") or image
    if not kind and not image:
        return {}
    return {"kind": kind or "container", "image": mask_text(image[:400])}


def launcher(pid: int) -> Launcher | None:
    """What started a process, if it is a launcher of ranks that is known; None elsewhere than on Linux."""
    status = Path(f"/proc/{pid}/stat")
    try:
        parent = int(status.read_text().rpartition(")")[2].split()[1])
        with open(f"/proc/{parent}/cmdline", "rb") as file:
            words = [os.fsdecode(word) for word in file.read(_LONGEST).split(b"\0")[:-1]]
        cwd = os.readlink(f"/proc/{parent}/cwd")
    except (OSError, ValueError, IndexError) as error:
        pass_on(error)
        return None
    return Launcher(mask_argv(masked), cwd) if (masked := command(words)) else None


def command(words: Sequence[str]) -> list[str]:
    """A launcher's command line as ``-m module arguments``; [] if it is none that is known."""
    rest = list(words[1:])
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        rest.pop(0)
    if rest[:1] == ["-m"]:
        rest.pop(0)
    elif not rest or os.path.basename(rest[0]) not in LAUNCHERS:
        rest = list(words)
    name = os.path.basename(rest[0]) if rest else ""
    return ["-m", LAUNCHERS[name], *rest[1:]] if name in LAUNCHERS else []


def _text(path: Path) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_LONGEST)
    except OSError as error:
        pass_on(error)
        return None
