"""What values across ranks cost through a store and over the network, from 2 ranks to 64: a rank's own call, and the
helpers beside them."""

from __future__ import annotations

import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import Figure, cores, main
from benchmarks.ranks import VALUES, audit, values

SIZES = ((2, 1), (2, 8), (8, 8))
"""Nodes, and ranks of each."""
STEP_S = 0.5
"""64 ranks on two cores: what they do besides must not fill these."""
EVERY_S = 2
STORE, NETWORK = "store", "network"
FLAT = 2.0
"""Bound of what 64 ranks cost each beside what 2 cost."""
HELPERS = {"carry": "carrier", "fetch": "fetcher", "reduce": "reducer"}


def one_rank(rank: int, begin: float, steps: int) -> dict[str, Any]:
    """Training: processor seconds of each call of log."""
    import trackers

    run = trackers.init("json", project="bench", name="nodes")
    run.log(values(rank, 0), step=0)
    used = []
    for step in range(1, steps):
        time.sleep(max(0.0, begin + step * STEP_S - time.time()))
        row = values(rank, step)
        cpu = time.thread_time()
        run.log(row, step=step)
        used.append(time.thread_time() - cpu)
    began = time.monotonic()
    run.finish(timeout=120)
    return {"cpu_s": statistics.median(used), "finish_s": time.monotonic() - began, "directory": run.dir}


def play(nodes: int, ranks: int, steps: int, way: str = STORE) -> dict[str, float]:
    """Seconds of a processor for each rank and step, by who used them; values lost or wrong; the end's time."""
    here = Path.cwd() / f"{way}-{nodes}x{ranks}"
    here.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port, secret = free.getsockname()[1], secrets.token_hex(16)
    count = nodes * ranks
    begin = time.time() + 3.0 + 0.5 * count
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parent.parent)!r}); "
    processes = []
    for rank in range(count):
        node = rank // ranks
        call = f"from benchmarks import nodes; import json; print(json.dumps(nodes.one_rank({rank}, {begin}, {steps})))"
        environ = {
            **os.environ, "RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank % ranks),
            "LOCAL_WORLD_SIZE": str(ranks), "GROUP_RANK": str(node), "GROUP_WORLD_SIZE": str(nodes),
            "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": here.name,
            "TRACKER_STORE_EVERY": str(EVERY_S), "TRACKER_SAMPLE": "n", "TRACKER_AGENT": "n",
            "TRACKER_CONSOLE_CAPTURE": "n", "TRACKER_REDUCE_WAIT": "60",
        }  # fmt: skip
        if way == STORE:
            environ |= {"TRACKER_DIR": f"file://{here}/store", "TRACKER_STORE_DIR": f"{here}/node{node}"}
        else:
            environ |= {
                "TRACKER_DIR": f"{here}/node{node}", "TRACKER_NODES": NETWORK, "TRACKER_NODES_SECRET": secret,
                "TRACKER_NODES_ADDRESS": "127.0.0.1", "TRACKER_NODES_PORT": str(port),
            }  # fmt: skip
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", code + call], env=environ, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True,
            )
        )  # fmt: skip
    used = _helpers(here, begin, steps)
    answers = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    wrong, _ = audit(Path(answers[0]["directory"]), steps, count)
    share = (steps - 1) * count
    return {
        "call": statistics.median(answer["cpu_s"] for answer in answers),
        **{name: used.get(role, 0.0) / (0.8 * share) for role, name in HELPERS.items()},
        "wrong": wrong,
        "finish": answers[0]["finish_s"],
    }


def _helpers(here: Path, begin: float, steps: int) -> dict[str, float]:
    """Processor seconds of the helpers over the middle 8 tenths of the steps, by role."""
    seconds = steps * STEP_S
    time.sleep(max(0.0, begin + 0.1 * seconds - time.time()))
    before = _cpu(here)
    time.sleep(max(0.0, begin + 0.9 * seconds - time.time()))
    after = _cpu(here)
    found: dict[str, float] = {}
    for pid, (role, spent) in after.items():
        found[role] = found.get(role, 0.0) + spent - before.get(pid, (role, 0.0))[1]
    return found


def _cpu(here: Path) -> dict[int, tuple[str, float]]:
    found = {}
    for process in psutil.process_iter(["cmdline", "cpu_times"]):
        words = process.info["cmdline"] or []
        role = next((word for word in words if word in HELPERS), "")
        if role and any(f"{here}/" in word for word in words):
            found[process.pid] = role, sum(process.info["cpu_times"][:2])
    return found


def measure(quick: bool) -> list[Figure]:
    """The figures."""
    steps = 20 if quick else 60
    figures, wrong = [], 0.0
    for way in (STORE, NETWORK):
        found = {nodes * ranks: play(nodes, ranks, steps, way) for nodes, ranks in SIZES}
        few, many = found[min(found)], found[max(found)]
        figures += [
            Figure(f"{way}: log, {VALUES} values: processor time, {count} ranks", 1e6 * one["call"], "us")
            for count, one in found.items()
        ]
        figures.append(Figure("  64 ranks / 2", many["call"] / few["call"], "x", at_most=FLAT))
        for name in HELPERS.values():
            figures += [
                Figure(f"{way}: {name}, for each rank and step: {count} ranks", 1e6 * one[name], "us")
                for count, one in found.items()
            ]
            figures.append(Figure("  64 ranks / 2", many[name] / max(few[name], 1e-9), "x", at_most=FLAT))
        figures.append(Figure(f"{way}: finish of the main rank, 64 ranks", many["finish"], "s"))
        wrong += sum(one["wrong"] for one in found.values())
    return [*figures, Figure("cores", cores()), Figure("values lost, doubled or wrong", wrong, "", at_most=0)]


if __name__ == "__main__":
    main(measure, __doc__ or "")
