"""Draw docs/pictures/seeds.png: three learning rates of the demo with four seeds each, by `trackers plot`.

    python scripts/make_plots.py

Trains examples/digits.py twelve times in a temporary directory, which takes half a minute. Needs the `analysis` extra
and scikit-learn.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "pictures" / "seeds.png"
RATES, SEEDS = (0.1, 0.03, 0.01), range(4)
KEYS = "train_loss,val_loss,val_accuracy"
BYTES_MAX = 200_000


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        usual = {name: value for name, value in os.environ.items() if not name.startswith("TRACKER")}
        environ = {**usual, "TRACKER_MODE": "offline", "TRACKER_PROJECT": "digits", "PYTHONPATH": str(ROOT)}

        def run(*arguments: str, name: str = "") -> None:
            subprocess.run([sys.executable, *arguments], check=True, cwd=folder, stdout=subprocess.DEVNULL,
                           env={**environ, "TRACKER_RUN_NAME": name, "XDG_CACHE_HOME": folder})  # fmt: skip

        for rate in RATES:
            for seed in SEEDS:
                run(str(ROOT / "examples" / "digits.py"), "--steps", "300", "--eval-interval", "20", "--learning-rate",
                    str(rate), "--seed", str(seed), name=f"rate{rate}-seed{seed}")  # fmt: skip
        run("-m", "trackers", "plot", "digits", "--by", "seed", "--keys", KEYS, "-o", str(PICTURE))
    if PICTURE.stat().st_size > BYTES_MAX:
        raise SystemExit(f"{PICTURE} has more than {BYTES_MAX:,} bytes")
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
