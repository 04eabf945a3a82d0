"""Where a W&B login is looked for, and whether a run goes online."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from trackers.backends.wandb import precheck
from trackers.backends.wandb.tracker import WandbTracker
from trackers.errors import ConfigError, CredentialsMissing


class TestCheck:
    """What ``init`` can see before the first step."""

    @pytest.fixture(autouse=True)
    def _online(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("WANDB_MODE")

    def test_without_a_key_says_the_three_ways_out(self) -> None:
        """Online without any login: one line that names each remedy."""
        with pytest.raises(CredentialsMissing) as caught:
            WandbTracker.check({})
        assert all(word in str(caught.value) for word in ("wandb login", "WANDB_API_KEY", "WANDB_MODE=offline"))

    @pytest.mark.parametrize("options", [{"WANDB_OFFLINE": True}, {"WANDB_OFFLINE": "y"}, {"WANDB_MODE": "offline"}])
    def test_offline_needs_no_key(self, options: dict[str, Any]) -> None:
        """Offline nothing is needed."""
        WandbTracker.check(options)

    def test_key_in_the_environment_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """WANDB_API_KEY is enough."""
        monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
        WandbTracker.check({})

    @pytest.mark.parametrize("project", ["team/digits", "50%", "p" * 129])
    def test_project_that_the_client_refuses_is_an_error(self, project: str) -> None:
        """The client would refuse the name in each delivery; the line says how to give W&B another one."""
        offline = {"WANDB_OFFLINE": True, "TRACKER_PROJECT": project}
        with pytest.raises(ConfigError, match="WANDB_PROJECT gives W&B a name of its own"):
            WandbTracker.check(offline)
        WandbTracker.check({**offline, "WANDB_PROJECT": "digits"})
        from wandb import Settings, errors

        with pytest.raises(errors.UsageError):
            Settings(project=project)

    @pytest.mark.parametrize("named", [True, False])
    def test_key_in_netrc_is_found_for_its_host_alone(self, named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """``wandb login`` writes a netrc file: its key counts for the host it was written for."""
        path = Path.home() / ("elsewhere" if named else ".netrc")
        path.write_text(f"machine wandb.example.org\n  login user\n  password {'k' * 40}\n")
        if named:
            monkeypatch.setenv("NETRC", str(path))
        with pytest.raises(CredentialsMissing):
            WandbTracker.check({})
        monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
        WandbTracker.check({})

    def test_check_imports_no_wandb(self) -> None:
        """``init`` stays quick: looking for a login doesn't import the client."""
        code = (
            "import sys; from trackers.backends.wandb.tracker import WandbTracker; "
            "WandbTracker.check({'WANDB_OFFLINE': 'y'}); assert 'wandb' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_login_modes_follow_options_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Online unless an option or a variable says offline or disabled."""
    monkeypatch.delenv("WANDB_MODE")
    assert precheck.mode({}) == "online"
    assert precheck.mode({"WANDB_OFFLINE": False}) == "online"
    monkeypatch.setenv("WANDB_OFFLINE", "true")
    assert precheck.mode({}) == "offline"
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert precheck.mode({}) == "disabled"


@pytest.mark.slow
def test_server_that_is_away_costs_no_client(tmp_path: Path) -> None:
    """Where nothing listens, or the name is unknown, opening fails before wandb is loaded: it is tried for hours."""
    code = (
        "import sys; from trackers.backends.wandb.tracker import WandbTracker\n"
        "from trackers.errors import Unavailable\n"
        "from trackers.tracker import RunInfo, State\n"
        "try:\n    WandbTracker().open(RunInfo(id='r', name='r', project='p', directory=sys.argv[1]), State())\n"
        "except Unavailable as error:\n    print(error)\n"
        "assert 'wandb' not in sys.modules\n"
    )
    for url, said in (("http://127.0.0.1:9", "Connection refused"), ("http://no.such.invalid", "no.such.invalid")):
        env = {**os.environ, "WANDB_BASE_URL": url, "WANDB_API_KEY": "k" * 40, "WANDB_MODE": "online", "NO_PROXY": "*"}
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert said in done.stdout
