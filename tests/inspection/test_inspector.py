"""Tensor inspection as users ask for it: its configuration, the choice of layers, and what is wrong with either."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from trackers.errors import MissingPackage, UsageError
from trackers.inspection import TensorInspectConfig
from trackers.inspection import inspector as nvinspect
from trackers.inspection.config import InspectionSchedule, read_yaml
from trackers.inspection.features import CARRIED_OUT, Layers, names, sections, unwrapped
from trackers.inspection.inspector import Inspector
from trackers.inspection.statistics import TextLog

DOCUMENTED = """
fp8_tensor_stats:
  enabled: true
  layers:
    layer_name_regex_pattern: ".*(fc2)"
  transformer_engine:
    LogFp8TensorStats:
      enabled: true
      tensors: [weight,activation,gradient]
      stats: ["underflows%", "mse"]
      freq: 5
      start_step: 0
      end_step: 100
"""


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 12), nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


def section(
    *, layers: Any = None, base: bool = False, feature: str = "LogTensorStats", **settings: Any
) -> dict[str, Any]:
    inner = {feature: {"enabled": True, "tensors": ["activation"], "stats": ["max"], **settings}}
    chosen = {"layer_name_regex_pattern": ".*"} if layers is None else layers
    return {"s": {"enabled": True, "layers": chosen, **(inner if base else {"transformer_engine": inner})}}


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvinspect, "installed", lambda package=nvinspect.PACKAGE: False)


Start = Callable[..., tuple[Inspector, list[Any], list[str]]]


@pytest.fixture
def start() -> Iterator[Start]:
    made = []

    def start(features: Any, **more: Any) -> tuple[Inspector, list[Any], list[str]]:
        logged: list[Any] = []
        said: list[str] = []
        config = TensorInspectConfig(enabled=True, features=features, **more)
        made.append(Inspector(lambda values, step: logged.append((step, values)), said.append, config))
        return made[-1], logged, said

    yield start
    for inspector in made:
        inspector.close()


def test_documents_configuration_is_read() -> None:
    """Megatron Bridge's example, from a mapping, from a file, and from a file that holds the whole configuration."""
    Path("features.yaml").write_text(DOCUMENTED)
    Path("whole.yaml").write_text("tensor_inspect: {enabled: false, features: features.yaml, log_dir: here}\n")
    config = TensorInspectConfig.from_file("features.yaml")
    assert config.enabled
    whole = TensorInspectConfig.from_file("whole.yaml", log_dir="elsewhere")
    assert (whole.enabled, whole.log_dir) == (False, "here")
    assert config.read_features() == whole.read_features() == yaml.safe_load(DOCUMENTED)
    (found,) = sections(config.read_features())
    assert [request.tensor for request in found.requests] == ["weight", "activation", "gradient"]
    assert [name for name, _ in found.requests[0].stats] == ["underflows%", "mse"]
    assert found.requests[0].schedule == InspectionSchedule(5, ((0, 100),))
    assert found.requests[0].stats[0][1].cast.format == "E4M3"  # type: ignore[union-attr]
    assert found.requests[2].stats[0][1].cast.format == "E5M2"  # type: ignore[union-attr]
    from trackers.frameworks.megatron import TensorInspectConfig as same

    assert same is TensorInspectConfig


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (section(stats=["maxx"]), r"s: LogTensorStats: unknown statistic 'maxx': did you mean 'max'\? Known: min"),
        (section(stats=["cur_amax"], base=True), r"unknown statistic 'cur_amax'.*Known: min, max, mean, std, l1_norm"),
        (section(feature="LogTensorStat"), r"feature 'LogTensorStat': did you mean 'LogTensorStats'.*FakeQuant"),
        (section(feature="LogFp8TensorStats", base=True), r"unknown feature.*Known: transformer_engine, LogT"),
        (section(feature="LogFp8TensorStats"), r"no statistic 'max': known are underflows%, scale_inv_min"),
        (section(feature="LogFp8TensorStats", stats=["fp8_delayed_scaling_mse"]), r"depends on the history"),
        (section(feature="LogFp8TensorStats", stats=["mse_columnwise"]), r"leave out _columnwise"),
        (section(feature="LogFp8TensorStats", stats=["mse"], fp8_format="E3M4"), r"known are HYBRID, E4M3, E5M2"),
        (section(tensors=True), "tensors is a list of"),
        (section(tensors=["activations"]), r"unknown tensor 'activations': did you mean 'activation'\? Known:"),
        (section(frequency=3), r"unknown setting 'frequency'.*Known: stats, freq, start_step"),
        (section(freq=0), r"freq=0: give 1 or more"),
        (section(end_step="last"), r"end_step='last': give a whole number"),
        (section(start_end_list=[3, 4]), r"start_end_list=\[3, 4\]: give pairs"),
        (section(stats=[]), r"stats is missing"),
        (section(tensors_struct=["weight"]), r"tensors_struct holds a list"),
        (section(layers={}), r"s: layers is missing: choose by layer_name_regex_pattern, layer_types"),
        (section(layers={"regex": "."}), r"s: layers is missing"),
        (section(layers={"layer_types": ["fc1"], "names": 1}), r"layers: unknown names; known are"),
        (section(layers={"layer_name_regex_pattern": "(fc"}), r"layer_name_regex_pattern '\(fc': "),
        (section(layers={"layer_numbers": ["first"]}), r"layer_numbers='first': give numbers, or ranges"),
        ({"s": {"layers": {"layer_types": ["a"]}}}, r"s: enabled is missing"),
        ({"s": 3}, r"s: a section holds enabled, layers and features"),
        ({"s\nt": 3}, r"^s t: a section holds enabled, layers and features"),
        ({"s\nt": section(freq=0)["s"]}, r"^s t: LogTensorStats: freq=0: give 1 or more"),
        ({"s\nt": section(layers={"layer_types": ["a"], "n\nm": 1})["s"]}, r"^s t: layers: unknown n m; known are"),
        ({"s": {**section()["s"], "transformer_engine": {"LogTensorStats": {"stats": []}}}}, r"enabled is missing"),
    ],
)  # fmt: skip
def test_senseless_configuration_is_named(features: dict[str, Any], message: str) -> None:
    """What is unknown or missing is said before training begins, with what is known."""
    with pytest.raises(UsageError, match=message):
        sections(features)


def test_what_transformer_engine_alone_knows_is_its_own() -> None:
    """Where TransformerEngine carries a configuration out, its own statistics are no error, and misspelt ones are."""
    blocks = {"max_blockwise_dynamic_range": {"block_size": 32, "dims": 1}}
    (found,) = sections(section(stats=["max", blocks]), engine=True)
    assert [[name for name, _ in request.stats] for request in found.requests] == [["max"]] * len(found.requests)
    delayed = section(feature="LogFp8TensorStats", stats=["fp8_delayed_scaling_underflows%"])
    assert sections(delayed, engine=True)[0].requests == ()
    switch = {"s": {"enabled": True, "layers": {"layer_types": ["qkv"]},
                    "transformer_engine": {"AutoswitchGemm": {"enabled": True, "gemms": ["fprop"]}}}}  # fmt: skip
    assert sections(switch)[0].carried_out == ("AutoswitchGemm",)
    for wrong in (section(stats=["max", blocks]), delayed):
        with pytest.raises(UsageError):
            sections(wrong)
    with pytest.raises(UsageError, match="unknown statistic 'maxx'"):
        sections(section(stats=["maxx"]), engine=True)


def test_what_is_not_enabled_is_not_looked_at() -> None:
    """A section that is off isn't read, and of one that is on the features that are off are left out."""
    off = {"a": {"enabled": False, "nonsense": 1}, "b": section(enabled=False)["s"]}
    (found,) = sections(off)
    assert (found.name, found.requests, found.carried_out) == ("b", (), ())


def test_files_that_hold_no_configuration_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that isn't there, no YAML, code in YAML, a list, an unknown field, no features, no PyYAML."""
    Path("bad.yaml").write_text("a: [1,\n")
    Path("code.yaml").write_text("a: !!python/object/apply:os.system ['touch made']\n")
    Path("list.yaml").write_text("- 1\n")
    Path("field.yaml").write_text("tensor_inspect: {enable: true}\n")
    for name, message in (
        ("none.yaml", "can't be read"),
        ("bad.yaml", "isn't valid YAML"),
        ("code.yaml", "isn't valid YAML"),
        ("list.yaml", "must hold a mapping"),
        ("field.yaml", "unknown enable; known are enabled, features"),
    ):
        with pytest.raises(UsageError, match=message):
            TensorInspectConfig.from_file(name)
    assert not Path("made").exists()
    with pytest.raises(UsageError, match="features is missing"):
        TensorInspectConfig(enabled=True).read_features()
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingPackage, match=r"trackers-relay\[inspect\]"):
        read_yaml("bad.yaml")


@pytest.mark.parametrize(
    ("layers", "chosen"),
    [
        ({"layer_name_regex_pattern": r".*"}, ["fc1", "fc2"]),
        ({"layer_name_regex_pattern": r"fc2$"}, ["fc2"]),
        ({"layer_name_regex_pattern": r"^fc"}, []),
        ({"layer_types": ["fc1", "qkv"]}, ["fc1"]),
        ({"layer_types": "all"}, ["fc1", "fc2"]),
        ({"layer_types": ["Linear"]}, ["fc1", "fc2"]),
        ({"exact_layer_names": ["model.fc2", "model"]}, ["", "fc2"]),
        ({"layer_numbers": ["0-2", 5]}, []),
        ({"layer_numbers": "all", "layer_types": ["fc1"]}, ["fc1"]),
    ],
)
def test_layers_are_chosen_by_name(layers: dict[str, Any], chosen: list[str]) -> None:
    """By a regular expression anywhere in the name, parts of it, numbers, or the whole name."""
    selected = Layers.read(layers, "s")
    found = names(unwrapped(nn.DataParallel(Mlp())))
    assert [
        name.removeprefix("model").removeprefix(".")
        for name, module in found.items()
        if selected.chosen(name, type(module).__name__, isinstance(module, nn.Linear))
    ] == chosen


def test_numbers_are_those_of_layers_not_of_their_kinds() -> None:
    """``layer_numbers`` takes the first number of a name that isn't fc1's or fc2's."""
    selected = Layers.read({"layer_numbers": ["1-2"]}, "s")
    for name, meant in (("model.layers.1.fc2", True), ("model.layers.3.fc1", False), ("model.fc1", False)):
        assert selected.chosen(name, "Linear", True) is meant


def test_regular_expression_that_matches_nothing_is_said_once(start: Any, without_library: None) -> None:
    """With the names that there are; training goes on."""
    inspector, logged, said = start(section(layers={"layer_name_regex_pattern": "mlp.*"}))
    model = Mlp()
    inspector.attach(model)
    for _ in range(3):
        model(torch.ones(2, 6)).sum().backward()
        inspector.step()
    assert said == [
        "tensor inspection: s matches no layer by layer_name_regex_pattern 'mlp.*'; the model's linear layers are "
        "model.fc1, model.fc2"
    ]
    assert logged == []


def test_layer_in_two_sections_is_refused(start: Any, without_library: None) -> None:
    """As by nvdlfw-inspect: it couldn't say which of them counts."""
    both = {"a": section()["s"], "b": section(layers={"layer_types": ["fc1"]})["s"]}
    inspector, _, _ = start(both)
    with pytest.raises(UsageError, match=r"a and b both mean the layer model\.fc1"):
        inspector.attach(Mlp())


@pytest.mark.parametrize("name", CARRIED_OUT[:4])
def test_features_of_transformer_engine_need_it(name: str, start: Any) -> None:
    """What changes the computation can't be done here: one line says what would do it."""
    features = {
        "s": {"enabled": True, "layers": {"layer_types": ["fc1"]}, "transformer_engine": {name: {"enabled": True}}}
    }
    with pytest.raises(
        UsageError, match=rf"s: {name} is carried out by TransformerEngine and nvdlfw-inspect.*pip inst"
    ):
        start(features)


def test_missing_fp8_type_is_named(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch without FP8 can't round to it: said before training begins, and only where it is asked for."""
    monkeypatch.delattr(torch, "float8_e5m2")
    with pytest.raises(UsageError, match=r"has no float8_e5m2: install torch 2\.1 or later"):
        start(section(feature="LogFp8TensorStats", tensors=["gradient"], stats=["mse"]))
    start(section(feature="LogFp8TensorStats", tensors=["activation"], stats=["mse"]))


def test_directory_that_cannot_be_written_is_named(start: Any) -> None:
    """Before training begins; a disk that fills up later costs the text log, once said, and nothing else."""
    Path("file").write_text("")
    with pytest.raises(UsageError, match="log_dir 'file/logs' can't be written: Not a directory: give another"):
        start(section(), log_dir="file/logs")
    said: list[str] = []
    log = TextLog("logs", 0, said.append)
    assert log._fd is not None
    os.dup2(os.open("/dev/full", os.O_WRONLY), log._fd)
    log.log({"a": 1.0}, 3)
    log.log({"a": 1.0}, 4)
    log.close()
    assert len(said) == 1
    assert "can't be written (No space left on device): the trackers go on" in said[0]


def test_feature_directories_need_the_library(start: Any, without_library: None) -> None:
    """Features of one's own are nvdlfw-inspect's to load."""
    with pytest.raises(UsageError, match="feature_dirs need nvdlfw-inspect: pip install nvdlfw-inspect"):
        start(section(), feature_dirs=["mine"])
