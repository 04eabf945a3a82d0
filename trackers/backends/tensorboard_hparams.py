"""A run's configuration and results as TensorBoard's hparams plugin reads them. Needs the tensorboard package."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from tensorboard.compat.proto import summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2

from trackers.records import flatten, name_floats
from trackers.tracker import Status

# tensorboard/plugins/hparams/metadata.py, which would import NumPy
_EXPERIMENT_TAG = "_hparams_/experiment"
_START_TAG = "_hparams_/session_start_info"
_END_TAG = "_hparams_/session_end_info"
_PLUGIN_DATA_VERSION = 0

_STATUSES = {
    "finished": api_pb2.STATUS_SUCCESS,
    "failed": api_pb2.STATUS_FAILURE,
    "crashed": api_pb2.STATUS_FAILURE,
    "preempted": api_pb2.STATUS_FAILURE,
    "running": api_pb2.STATUS_RUNNING,
}


def session(
    name: str, config: Mapping[str, Any], metrics: Iterable[str], begin: float, status: Status, group: str
) -> list[Any]:
    """The three values that make one run a row of the hparams table.

    Args:
        name: the row's name. config: nested; its leaves become columns, joined with "/".
        metrics: tags of the scalars that are results. begin: Unix seconds. group: runs shown as one, or "".
    """
    values = {key: _plain(value) for key, value in flatten(dict(config))}
    infos = [api_pb2.HParamInfo(name=key, type=_type(value)) for key, value in values.items()]
    experiment = api_pb2.Experiment(
        name=name,
        time_created_secs=begin,
        hparam_infos=infos,
        metric_infos=[api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag)) for tag in metrics],
    )
    start = plugin_data_pb2.SessionStartInfo(start_time_secs=begin, group_name=group)
    for key, value in values.items():
        if isinstance(value, bool):
            start.hparams[key].bool_value = value
        elif isinstance(value, float):
            start.hparams[key].number_value = value
        else:
            start.hparams[key].string_value = value
    end = plugin_data_pb2.SessionEndInfo(status=_STATUSES[status.name], end_time_secs=status.time)
    data = plugin_data_pb2.HParamsPluginData
    return [
        _value(_EXPERIMENT_TAG, data(version=_PLUGIN_DATA_VERSION, experiment=experiment)),
        _value(_START_TAG, data(version=_PLUGIN_DATA_VERSION, session_start_info=start)),
        _value(_END_TAG, data(version=_PLUGIN_DATA_VERSION, session_end_info=end)),
    ]


def _plain(value: Any) -> bool | float | str:
    """A leaf as one of the plugin's three types. Its server can't write NaN and infinities, so these are strings."""
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        try:
            number = float(value)
        except OverflowError:
            return str(value)
        return number if math.isfinite(number) else str(name_floats(number))
    return json.dumps(name_floats(value), ensure_ascii=False, default=str)


def _type(value: bool | float | str) -> int:
    if isinstance(value, bool):
        return int(api_pb2.DATA_TYPE_BOOL)
    return int(api_pb2.DATA_TYPE_FLOAT64 if isinstance(value, float) else api_pb2.DATA_TYPE_STRING)


def _value(tag: str, data: Any) -> Any:
    plugin = summary_pb2.SummaryMetadata.PluginData(plugin_name="hparams", content=data.SerializeToString())
    empty = tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=0)])
    return summary_pb2.Summary.Value(
        tag=tag,
        metadata=summary_pb2.SummaryMetadata(plugin_data=plugin, data_class=summary_pb2.DATA_CLASS_TENSOR),
        tensor=tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, tensor_shape=empty),
    )
