"""nvdlfw-inspect itself, on the CPU: the same numbers, names and text logs as ours, its own features, its end."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.inspection.test_inspector import Mlp, section, start
from trackers.errors import UsageError
from trackers.inspection import inspector as nvinspect
from trackers.inspection.statistics import FOLDER, TextLog, line

__all__ = ["start"]

STATS = ["min", "max", "mean", "std", "l1_norm", "l2_norm"]
LINE = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - INFO - (\S+) \t\t\t\t iteration=(\d{6}) \t\t\t\t value=(\S+)"
)


def fields(text: str) -> tuple[str, int, float]:
    match = LINE.fullmatch(text)
    assert match is not None, text
    return match[1], int(match[2]), float(match[3])


def both_ways(start: Any, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, **more: Any) -> list[list[Any]]:
    """What is logged of the same steps of the same model with nvdlfw-inspect and without it."""
    found = []
    for with_library in (True, False):
        if not with_library:
            monkeypatch.setattr(nvinspect, "installed", lambda package=nvinspect.PACKAGE: False)
        torch.manual_seed(0)
        model = Mlp().to(dtype)
        struct = [
            {"tensor": "activation", "stats": STATS},
            {"tensor": "gradient", "stats": STATS[:4], "freq": 2},
            {"tensor": "weight", "stats": ["std", "L1_norm"], "start_end_list": [[1, 2], [3, 4]]},
            {"tensor": "wgrad", "stats": ["l2_norm"], "start_step": 1, "end_step": 2},
            {"tensor": "output", "stats": ["max"]},
            {"tensor": "dgrad", "stats": ["max"]},
        ]
        features = section(base=True, freq=1)
        features["s"]["LogTensorStats"] |= {"tensors_struct": struct}
        inspector, logged, said = start(features, log_dir=f"logs-{with_library}", **more)
        assert (inspector._library is not None) is with_library
        inspector.attach(model)
        for _ in range(5):
            model(torch.randn(8, 6).to(dtype)).float().square().sum().backward()
            inspector.step()
        inspector.close()
        assert said == []
        found.append(logged)
    return found


@pytest.mark.parametrize(("dtype", "precision"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_real_library_gives_the_same_numbers(
    start: Any, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, precision: float
) -> None:
    """nvdlfw-inspect's own LogTensorStats and ours: the same names at the same iterations, the same numbers, the same
    text logs. (In bfloat16 nvdlfw-inspect sums with three digits.)
    """
    theirs, ours = both_ways(start, monkeypatch, dtype)
    assert [step for step, _ in ours] == [step for step, _ in theirs] == [0, 1, 2, 3, 4]
    for (_, own), (_, other) in zip(ours, theirs, strict=True):
        assert own.keys() == other.keys()
        for name, value in own.items():
            assert value == pytest.approx(float(other[name]), rel=precision, abs=precision), name
    logs = [sorted(map(fields, Path(f"logs-{way}", FOLDER).glob("*.log").__next__().read_text().splitlines()))
            for way in (True, False)]  # fmt: skip
    assert [one[:2] for one in logs[0]] == [one[:2] for one in logs[1]]
    assert len(logs[0]) == sum(len(values) for _, values in ours)


def test_text_log_is_the_librarys_own_format(start: Any) -> None:
    """Ours is the line that nvdlfw-inspect's file logger writes, in the file that it writes it to."""
    import nvdlfw_inspect.logging as theirs

    theirs.initialize_logger("theirs")
    theirs.make_default_statistics_logger().log_scalar("model.fc1_activation_max", 2.345678, 7)
    try:
        (other,) = Path("theirs", FOLDER).iterdir()
        log = TextLog("ours", 0, pytest.fail)
        log.log({"model.fc1_activation_max": 2.345678}, 7)
        log.close()
        assert log.path.name == other.name
        beside = TextLog("ours", 3, pytest.fail)
        beside.close()
        assert beside.path == log.path.with_name(other.name.replace("rank-0", "rank-3"))
        stamp = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}")
        assert stamp.sub("T", log.path.read_text()) == stamp.sub("T", other.read_text())
        assert line("T", "a_b%", 3, float("nan")) == "T - INFO - a_b% \t\t\t\t iteration=000003 \t\t\t\t value=nan\n"
    finally:
        for name in ("nvdlfw_inspect", "Default Statistics"):
            for handler in list(logging.getLogger(name).handlers):
                logging.getLogger(name).removeHandler(handler)
                handler.close()


def test_library_is_ended_and_can_be_started_again(start: Any) -> None:
    """It is one for the process: a second is refused; after close it is free, and its log handlers are gone."""
    import nvdlfw_inspect.api as api

    handlers = list(logging.getLogger("nvdlfw_inspect").handlers)
    for _ in range(2):
        inspector, _, _ = start(section(base=True), log_dir="logs")
        assert api.DEBUG_MANAGER is not None
        with pytest.raises(UsageError, match="nvdlfw-inspect is already started"):
            start(section(base=True), log_dir="logs")
        inspector.close()
        assert api.DEBUG_MANAGER is None
        assert logging.getLogger("nvdlfw_inspect").handlers == handlers


OWN_FEATURE = """
from nvdlfw_inspect.debug_features.log_tensor_stats import LogTensorStats
from nvdlfw_inspect.logging import MetricLogger
from nvdlfw_inspect.registry import Registry, api_method

@Registry.register_feature(namespace="base")
class LogSquares(LogTensorStats):
    @api_method
    def log_squares(self, config, layer_name, **kwargs):
        MetricLogger.log_scalar(f"{layer_name}_squares", kwargs["tensor"].square().sum(), config["at"])
"""


def test_features_of_ones_own_reach_the_library(start: Any) -> None:
    """feature_dirs: a feature that only nvdlfw-inspect knows is handed to it, and what it logs comes into the run."""
    import nvdlfw_inspect.api as api

    Path("mine").mkdir()
    Path("mine/squares.py").write_text(OWN_FEATURE)
    features = section(base=True)
    features["s"]["LogSquares"] = {"enabled": True, "tensors": ["t"], "at": 5}
    inspector, logged, said = start(features, log_dir="logs", feature_dirs=["mine"])
    model = Mlp()
    inspector.attach(model)
    model(torch.ones(2, 6))
    api.log_squares(model.fc1.name, tensor_name="t", tensor=torch.full((3,), 2.0))
    inspector.step()
    assert {step: {name: float(value) for name, value in values.items()} for step, values in logged}[5] == {
        "model.fc1_squares": 12.0
    }
    assert said == []
    inspector.close()
    features["s"]["LogCubes"] = {"enabled": True}
    with pytest.raises(UsageError, match="refuses the features: Could not find feature 'LogCubes'"):
        start(features, log_dir="logs", feature_dirs=["mine"])


def test_without_transformer_engine_its_statistics_are_ours() -> None:
    """What nvdlfw-inspect could only do with TransformerEngine isn't handed to it; all else is, unchanged."""
    features = {"a": section()["s"], "b": section(base=True)["s"], "c": {"enabled": False}}
    assert nvinspect.handed_over(features, ("LogTensorStats",), engine=False) == {"b": features["b"]}
    assert nvinspect.handed_over(features, ("LogTensorStats",), engine=True) == {"a": features["a"], "b": features["b"]}
    features["a"]["transformer_engine"]["FakeQuant"] = {"enabled": True}
    handed = nvinspect.handed_over(features, ("LogTensorStats",), engine=False)
    assert handed["a"]["transformer_engine"] == {"FakeQuant": {"enabled": True}}
    assert "LogTensorStats" in features["a"]["transformer_engine"]


ENGINE_FEATURES = """
from nvdlfw_inspect.base import BaseConfigAPIMapper, BaseNamespaceAPI
from nvdlfw_inspect.logging import MetricLogger
from nvdlfw_inspect.registry import Registry, api_method

class Mapper(BaseConfigAPIMapper):
    def parse_config_and_api(self, config, **kwargs):
        return kwargs["tensor_name"] in config["tensors"], config

@Registry.register_feature(namespace="transformer_engine")
class FakeQuant(Mapper):
    @api_method
    def modify_tensor(self, config, layer_name, tensor_name, tensor):
        asked.append(config)
        return tensor * 2

@Registry.register_feature(namespace="transformer_engine")
class LogTensorStats(Mapper):
    seen = []
    @api_method
    def inspect_tensor(self, config, layer_name, tensor_name, tensor):
        self.seen.append((f"{layer_name}_{tensor_name}_max", tensor.max()))

@Registry.register_namespace_api(namespace="transformer_engine")
class TransformerEngineAPI(BaseNamespaceAPI):
    def input_assertions_hook(self, api_name, **kwargs): pass
    def output_assertions_hook(self, api_name, ret, **kwargs): pass
    def is_multiple_feature_invocation_allowed(self, api_name): return False
    def routing_condition(self, api_name, config, layer_name, feature_obj, **kwargs):
        return feature_obj.parse_config_and_api(config, **kwargs)
    def step(self):
        for name, value in LogTensorStats.seen:
            MetricLogger.log_scalar(name, value, 5)
        LogTensorStats.seen.clear()

import builtins
asked = builtins.asked_of_engine = []
"""
ENGINE_LAYERS = """
import nvdlfw_inspect.api as debug_api
import torch

class Linear(torch.nn.Linear):
    def forward(self, x):
        api = debug_api.transformer_engine
        changed = api.modify_tensor(self.name, tensor_name="activation", tensor=x)
        api.inspect_tensor(self.name, tensor_name="activation", tensor=changed)
        return super().forward(changed)
"""


def test_features_reach_transformer_engine_unchanged(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for TransformerEngine below the real nvdlfw-inspect: its features get their settings as written
    and change what its layers compute, its statistics come into the run; layers of torch's own are looked at here.
    """
    import builtins

    for folder in ("", "debug", "debug/features", "pytorch"):
        Path("path/transformer_engine", folder).mkdir(parents=True)
        Path("path/transformer_engine", folder, "__init__.py").write_text("")
    Path("path/transformer_engine/debug/features/api.py").write_text(ENGINE_FEATURES)
    Path("path/transformer_engine/pytorch/__init__.py").write_text(ENGINE_LAYERS)
    monkeypatch.syspath_prepend("path")
    features = section(freq=1, stats=["max", {"max_blockwise_dynamic_range": {"block_size": 32}}])
    quantized = {"enabled": True, "tensors": ["activation"], "quant_format": "FP8E5M2", "gemms": ["fprop"]}
    features["s"]["transformer_engine"]["FakeQuant"] = quantized
    try:
        inspector, logged, said = start(features, log_dir="logs", init_training_step=5)
        from transformer_engine.pytorch import Linear

        model = torch.nn.Sequential(Linear(2, 2), torch.nn.Linear(2, 2))
        inspector.attach(model)
        x = torch.ones(3, 2)
        output = model(x)
        assert torch.equal(output, model[1](torch.nn.functional.linear(2 * x, model[0].weight, model[0].bias)))
        inspector.step()
        assert builtins.asked_of_engine == [quantized]  # type: ignore[attr-defined]
        values = sorted((name, float(value)) for step, found in logged for name, value in found.items() if step == 5)
        assert values[0] == ("model.0_activation_max", 2.0)
        assert [name for name, _ in values] == ["model.0_activation_max", "model.1_activation_max"]
        assert said == []
    finally:
        for name in [name for name in sys.modules if name.startswith("transformer_engine")]:
            del sys.modules[name]
        if hasattr(builtins, "asked_of_engine"):
            del builtins.asked_of_engine
