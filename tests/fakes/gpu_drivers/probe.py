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
    """Print ``gpus``, ``readings`` (a list for each scene) and ``said``. A scene may set ``scope``."""
    said: list[str] = []
    knobs = Path(os.environ["STANDIN_KNOBS"])
    gpus: Gpus | None = None
    readings = []
    for scene in json.loads(scenes):
        scope = scene.pop("scope", "job")
        write_knobs(knobs, scene)
        gpus = gpus or Gpus(said.append, scope=scope, drm=Path(os.environ.get("STANDIN_DRM", "/nonexistent")))
        readings.append(msgspec.to_builtins(gpus.read()))
    assert gpus is not None
    found = {"gpus": msgspec.to_builtins(gpus.gpus), "readings": readings, "said": said}
    gpus.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
