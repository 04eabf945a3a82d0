"""``wandb.init``: W&B's arguments, in W&B's order and with W&B's meaning, for a run of ours.

It differs from ``trackers.init`` where the two words mean different things: ``dir``, ``mode="offline"``, ``reinit``, an
``id`` that exists, and the step of a call that gives none; and the run's ``dir`` is that of the script's own files.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trackers import configuration
from trackers.as_wandb import names, util
from trackers.errors import MissingPackage, UsageError
from trackers.formats.json_values import mapping
from trackers.training import init as start
from trackers.training.disabled import NullRun
from trackers.training.rank_run import RankRun
from trackers.training.run import Run
from trackers.training.wandb_arguments import assigned, filtered, read_config, warn

__all__ = ["init"]

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST_ID = 128
DEFAULTS = "config-defaults.yaml"
"""A file of the working directory whose values are the configuration's where nobody gave others."""

REINIT = ("default", "return_previous", "finish_previous", "create_new")
YES, NO = ("1", "on", "t", "true", "y", "yes"), ("0", "off", "f", "false", "n", "no")

_open: list[tuple[Run | NullRun, int]] = []
"""Runs that ``init`` made, and in which process, the latest last; with ``reinit="create_new"`` there are several."""


def init(
    entity: str | None = None,
    project: str | None = None,
    dir: str | os.PathLike[str] | None = None,
    id: str | None = None,
    name: str | None = None,
    notes: str | None = None,
    tags: Sequence[str] | None = None,
    config: Any = None,
    config_exclude_keys: list[str] | None = None,
    config_include_keys: list[str] | None = None,
    allow_val_change: bool | None = None,
    group: str | None = None,
    job_type: str | None = None,
    mode: str | None = None,
    force: bool | None = None,
    reinit: bool | str | None = None,
    resume: bool | str | None = None,
    resume_from: str | None = None,
    fork_from: str | None = None,
    save_code: bool | None = None,
    tensorboard: bool | None = None,
    sync_tensorboard: bool | None = None,
    monitor_gym: bool | None = None,
    settings: Any = None,
    anonymous: Any = None,
    **own: Any,
) -> Run | NullRun:
    """Begin a run, or give back the one that is open, as ``wandb.init`` does.

    Args:
        dir: where W&B would put its files. The journal lies where ``trackers ls`` looks from here: in TRACKER_DIR, or
            in ``<dir>/runs`` for a directory outside of the working directory where TRACKER_DIR isn't set.
        id: a run of that id is continued unless ``resume`` says otherwise; W&B would write over it. In a job of several
            processes it is one run, of the main rank; without an id each process that calls this has a run of its own.
        mode: "offline" is W&B's part only: its files wait for ``wandb sync``, the other trackers record.
        reinit: as in W&B: "return_previous" (default), "finish_previous" or True, "create_new" (``wandb.run`` stays as
            it is).
        config: stronger than the files config-defaults.yaml and WANDB_CONFIG_PATHS, weaker than the parameters that
            ``wandb agent`` gives a sweep's run.
        settings: they are stronger than those of ``wandb.setup``.
        **own: what ``trackers.init`` takes besides.

    Raises:
        UsageError, NotFound: as ``trackers.init``.
    """
    before, meant = start.current(), dict(assigned)
    fields = {**_fields(names.set_up), **_fields(settings)}
    reinit = _reinit(fields.pop("reinit", None) if reinit is None else reinit)
    if (open_run := _open_run(reinit)) is not None:
        return open_run
    config = filtered(config, config_include_keys, config_exclude_keys)
    swept = fields.pop("sweep_param_path", None)
    config = _with_files(config, fields.pop("config_paths", None), swept)
    given: dict[str, Any] = {
        "entity": entity, "project": project, "notes": notes, "tags": tags, "config": config, "group": group,
        "job_type": job_type, "resume_from": resume_from, "fork_from": fork_from, "save_code": save_code,
        "tensorboard": tensorboard, "sync_tensorboard": sync_tensorboard, "allow_val_change": allow_val_change,
        "reinit": "create_new" if reinit == "create_new" else None,
    }  # fmt: skip
    options = dict(own.pop("options", None) or {})
    asked = mode or fields.pop("mode", None)
    is_shared = str(asked or os.environ.get("WANDB_MODE") or "").strip().lower() == "shared"
    mode = _mode(asked, options)
    resume = resume if resume is not None else fields.pop("resume", None)
    id, name, resume = _named(id or fields.pop("run_id", None), name or fields.pop("run_name", None), resume)
    directory = _directory(dir if dir is not None else fields.pop("root_dir", None))
    if not (id or is_shared or _one_of_the_job(resume)):
        own.setdefault("rank", "own")
    more = {key: value for key, value in {**given, **own}.items() if value is not None}
    run = start.init(
        id=id, name=name, mode=mode, dir=directory, resume=resume, settings=fields or None, options=options or None,
        **more,
    )  # fmt: skip
    _prepare(run, id, swept)
    if monitor_gym:
        _monitor_gym()
    if not run.disabled:
        _open.append((run, os.getpid()))
    elif isinstance(run, NullRun):
        _describe_disabled(run, id, name, group, job_type, notes, tags)
    if reinit == "create_new":  # ``wandb.run`` and ``wandb.log`` stay as they are
        start.become(before)
        assigned.update(meant)
    return run


def _prepare(run: Run | NullRun, id: str | None, swept: str | None) -> None:
    """Have a run behave as W&B's does. swept: the file with the parameters of a sweep's run."""
    if swept:
        run.config.lock(read_config(swept))
    run.hold_steps()
    run.give_files_dir()
    if isinstance(run, RankRun):
        warn(f"init: what this rank logs isn't recorded: the run {id or run.id} of the job is logged by the main rank")
    run.sweep_id = os.environ.get("WANDB_SWEEP_ID") or None


def _reinit(given: Any) -> bool | str | None:
    """What ``reinit`` says, in W&B's words, or as a truth value, which W&B's client reads from texts and 0 and 1, too.

    Raises:
        UsageError: anything else.
    """
    word = str(given).lower()
    if given is None or given in REINIT:
        return given  # type: ignore[no-any-return]
    if not isinstance(given, (bool, int, str)) or word not in (*YES, *NO):
        raise UsageError(f"init: reinit={given!r:.60}: known are {', '.join(REINIT)}, True and False")
    return word in YES


def _open_run(reinit: Any) -> Run | NullRun | None:
    """The open run that is to be given back; where another one is to begin, those open are finished, and None."""
    _open[:] = [(run, pid) for run, pid in _open if pid == os.getpid() and not run.finished]
    latest = _open[-1][0] if _open else start.current_here() or names.attached_run()
    if latest is not None and not latest.disabled and not _begins_anew(reinit):
        return latest
    if reinit != "create_new":
        for run, _ in _open:
            if run is not start.previous():  # that one trackers.init finishes, and says so
                run.finish()
    return None


def _named(id: Any, name: Any, resume: Any) -> tuple[str | None, str | None, Any]:
    """Id, name and resume as ``trackers.init`` takes them: W&B takes any id, and goes on with a run of that id."""
    if id is not None:
        name = name or (str(id) if _safe_id(str(id)) != str(id) else None)
        id = _safe_id(str(id))
    if (id or os.environ.get("WANDB_RUN_ID")) and resume is None:
        resume = None if os.environ.get("TRACKER_RESUME") or os.environ.get("WANDB_RESUME") else "allow"
    if name is not None:  # W&B knows no templates
        name = str(name).replace("{", "{{").replace("}", "}}")
    return id, name, resume


def _describe_disabled(run: NullRun, id: Any, name: Any, group: Any, job_type: Any, notes: Any, tags: Any) -> None:
    """Give a run that records nothing what scripts read of it."""
    run.id = run.id or id or util.generate_id()
    run.name = run.name or name or f"dummy-{run.id}"
    run.group, run.job_type, run.notes = group, job_type, notes
    run.tags = (tags,) if isinstance(tags, str) else tuple(tags or ())


def _one_of_the_job(resume: Any) -> bool:
    """Whether the job's processes mean one run, which its main rank logs: it has an id, or is found by what it left."""
    variables = ("TRACKER_RUN_ID", "WANDB_RUN_ID", "TRACKER_RANK")
    word = resume if resume is not None else os.environ.get("TRACKER_RESUME") or os.environ.get("WANDB_RESUME") or ""
    found_again = word is True or str(word).strip().lower() in ("auto", "must", "1", "y", "yes", "true", "on")
    return found_again or any(map(os.environ.get, variables))


def _monitor_gym() -> None:
    from trackers.as_wandb import gym

    try:
        gym.monitor()
    except MissingPackage as error:
        warn(f"init: {error}")


def _with_files(config: Any, paths: Any, sweep: Any) -> Any:
    """A configuration with what W&B reads besides: its files of defaults, and the parameters of a sweep's agent."""
    if isinstance(paths, (str, os.PathLike)):
        paths = os.fspath(paths).split(",")
    files = [DEFAULTS, *(paths or os.environ.get("WANDB_CONFIG_PATHS", "").split(","))]
    defaults = [read_config(file) for file in files if file and os.path.isfile(file)]
    sweep = sweep or os.environ.get("WANDB_SWEEP_PARAM_PATH")
    if not defaults and not sweep:
        return config
    own = read_config(config) if isinstance(config, (str, os.PathLike)) else mapping(config)
    parts = [*defaults, own, read_config(sweep) if sweep else {}]
    return {name: value for part in parts for name, value in part.items()}


def _begins_anew(reinit: Any) -> bool:
    if reinit is True or reinit in ("finish_previous", "create_new"):
        return True
    return reinit in (None, "default") and "ipykernel" in sys.modules


def _fields(settings: Any) -> dict[str, Any]:
    if settings is None:
        return {}
    if isinstance(settings, Mapping):
        return {name: value for name, value in settings.items() if value is not None}
    if hasattr(settings, "model_dump"):
        return dict(settings.model_dump(exclude_unset=True, exclude_none=True))
    return {name: value for name, value in vars(settings).items() if value is not None}


def _mode(mode: Any, options: dict[str, Any]) -> str | None:
    """Our mode for W&B's; what W&B alone is to do goes to the options."""
    word = str(mode or "").lower()
    if word in ("offline", "dryrun"):
        options.setdefault("WANDB_OFFLINE", True)
    if word in ("", "shared", "offline", "dryrun", "online") and not _switched_off():
        return None
    return "online" if word in ("online", "shared", "offline", "dryrun") else word or None


def _switched_off() -> bool:
    """Whether W&B's variables say that nothing is recorded: an argument is stronger, as in W&B."""
    word = os.environ.get("WANDB_MODE", "").strip().lower()
    off = word == "disabled" or os.environ.get("WANDB_DISABLED", "").strip().lower() in ("1", "y", "yes", "true", "on")
    return off and not os.environ.get("TRACKER_MODE")


def _directory(directory: Any) -> str | None:
    """The directory of runs for W&B's ``dir``; None: the usual one."""
    if directory is None:
        return None
    try:
        path, here = Path(os.fspath(directory)).expanduser().resolve(), Path.cwd().resolve()
    except (OSError, TypeError):
        return None
    if path == here or path.is_relative_to(here):
        return None
    source = configuration.resolve().source("TRACKER_DIR")
    return None if source != "default" and "WANDB_DIR" not in source else str(path / "runs")


def _safe_id(text: str) -> str:
    """An id of W&B's with our characters: it is the name of a directory."""
    cleaned = _NOT_IN_IDS.sub("-", text)[:_LONGEST_ID]
    return cleaned if cleaned[:1].isalnum() or cleaned[:1] == "_" else f"_{cleaned[1:]}"
