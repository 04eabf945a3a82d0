"""The reader of other people's wandb scripts tells what is there from what isn't."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import wandb
from wandb.sdk.lib import RunDisabled
from wandb.keras import WandbCallback
from wandb.nowhere import nothing
import wandb.elsewhere

run = wandb.init(project="p", nonsense=1)
run.log({"loss": 0.5}, step=1)
run._label(repo="x")
run.use_artifact("a:latest").download()
run.restore("weights.pt")
run.never_heard_of()
wandb.run.summary.best = 1
wandb.config.learning_rate
wandb.agent("sweep", function=None)
table = wandb.Table(columns=["a"], rows_of_it=[])
table.add_data(1)
table.add_nothing(1)
image = wandb.Image("a.png")
image = image.convert("RGB")
wandb.no_such_thing()
api = wandb.Api()
api.runs("p")
"""

CODE = """
import json, sys
from tests.as_wandb import corpus
found = corpus.look(sys.stdin.read(), corpus.prepared())
print(json.dumps([sorted(found.unknown), sorted(found.service)]))
"""


def test_file_is_told_apart() -> None:
    """Names, attributes and keywords that aren't W&B's are named; what asks W&B's service is named apart."""
    done = subprocess.run([sys.executable, "-c", CODE], input=SCRIPT, capture_output=True, text=True, check=True)
    unknown, service = json.loads(done.stdout.splitlines()[-1])
    assert unknown == [
        *("import wandb.elsewhere", "import wandb.nowhere", "run.never_heard_of", "table.add_nothing"),
        *("wandb.Table(rows_of_it=)", "wandb.no_such_thing"),
    ]
    assert service == ["api.runs", "run.restore", "wandb.Api", "wandb.agent"]


FINDS = """
import wandb
api = wandb.Api()
artifact = api.artifact("digits/dataset:latest")
artifact.download(root="data")
artifact.never_heard_of()
for version in api.artifact_versions("model", "digits/model"):
    print(version.aliases)
"""


@pytest.mark.slow
def test_file_that_finds_artifacts_asks_no_service() -> None:
    """Api's artifacts are here; what a version hasn't is named."""
    done = subprocess.run([sys.executable, "-c", CODE], input=FINDS, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [["artifact.never_heard_of"], []]


@pytest.mark.slow
def test_checkout_is_read_whole(tmp_path: Path) -> None:
    """Of a repository the files that import wandb are read, as they were committed."""
    (tmp_path / "a.py").write_text("import wandb\nwandb.init()\nwandb.no_such_thing()\n")
    (tmp_path / "b.py").write_text("import wandb\nwandb.log({'a': 1})\n")
    (tmp_path / "c.py").write_text("print('nothing')\n")
    named = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for words in (("init", "-q"), ("add", "."), (*named, "commit", "-qm", "All")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    command = [sys.executable, "-m", "tests.as_wandb.corpus", str(tmp_path)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert f"{tmp_path} a.py: wandb.no_such_thing" in done.stdout
    assert "files: 2," in done.stdout
    assert "files with all there: 1" in done.stdout
