"""A run's configuration and results as TensorBoard's hparams plugin reads them. Needs the tensorboard package."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from tensorboard.compat.proto import summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2

from trackers.records import flatten, name_floats
from trackers.tracker import Status

# tensorboard/plugins/hparams/metadata.py, which would import NumPy
_START_TAG = "_hparams_/session_start_info"
_END_TAG = "_hparams_/session_end_info"
_PLUGIN_DATA_VERSION = 0

GROUP = "group"
"""The column of a run's group."""

OURS = "trackers:"
"""The model's address in our sessions: their group name is a run's, not a group's."""

_STATUSES = {
    "finished": api_pb2.STATUS_SUCCESS,
    "failed": api_pb2.STATUS_FAILURE,
    "crashed": api_pb2.STATUS_FAILURE,
    "preempted": api_pb2.STATUS_FAILURE,
    "running": api_pb2.STATUS_RUNNING,
}


def session(row: str, config: Mapping[str, Any], begin: float, status: Status, group: str) -> list[Any]:
    """The values that make one run a row of the hparams table.

    Args:
        row: the row's name, which no other run may have: TensorBoard takes runs of one name for repetitions, and shows
            the mean of their results.
        config: nested; its leaves become columns, joined with "/". begin: Unix seconds.
        group: the run's, or "": a column, where the configuration has none of that name.

    There is no list of the columns: of several runs' lists TensorBoard takes one, and leaves out what only others have.
    """
    values = {key: _plain(value) for key, value in flatten(dict(config))}
    if group:
        values.setdefault(GROUP, group)
    start = plugin_data_pb2.SessionStartInfo(start_time_secs=begin, group_name=row, model_uri=OURS)
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


def _value(tag: str, data: Any) -> Any:
    plugin = summary_pb2.SummaryMetadata.PluginData(plugin_name="hparams", content=data.SerializeToString())
    empty = tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=0)])
    return summary_pb2.Summary.Value(
        tag=tag,
        metadata=summary_pb2.SummaryMetadata(plugin_data=plugin, data_class=summary_pb2.DATA_CLASS_TENSOR),
        tensor=tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, tensor_shape=empty),
    )
