"""Reads GPUs once for each scene, in a process that the stand-ins' libraries are loaded into; prints JSON.

python -m tests.fakes.gpu_drivers.probe '[{"count": 2}, {"count": 2, "power.1": 250000}]'
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import msgspec

from tests.fakes.gpu_drivers.standin import write_knobs
from trackers.hardware.gpus.detect import Gpus


def main(scenes: str) -> None:
    """Print ``gpus``, ``readings`` (a list for each scene), ``said`` and ``events``.

    A scene may set ``scope``, ``details`` and ``whole``.
    """
    said: list[str] = []
    knobs = Path(os.environ["STANDIN_KNOBS"])
    gpus: Gpus | None = None
    readings = []
    for scene in json.loads(scenes):
        scope, whole = scene.pop("scope", "job"), scene.pop("whole", False)
        details = scene.pop("details", ())
        write_knobs(knobs, scene)
        gpus = gpus or Gpus(
            said.append, scope=scope, details=details, drm=Path(os.environ.get("STANDIN_DRM", "/nonexistent"))
        )
        readings.append(msgspec.to_builtins(gpus.read(whole)))
    assert gpus is not None
    found = {"gpus": msgspec.to_builtins(gpus.gpus), "readings": readings, "said": said}
    found["events"] = msgspec.to_builtins(gpus.events)
    gpus.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
