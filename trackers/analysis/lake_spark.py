"""SQL over a lake on Spark: the views of :mod:`trackers.analysis.lake_sql`, read by Spark's executors.

Spark is told the Parquet files that the tables consist of now, as their logs say: it needs no package for Delta tables.
A store's files are read as Spark reads that store: ``s3://`` becomes ``s3a://``, whose package and keys are Spark's own
settings (``SPARK_CONF_DIR``, ``spark-defaults.conf``).
"""

from __future__ import annotations

import os
import re
from typing import Any

from trackers.analysis.lake_sql import RAW, LakeViews, View
from trackers.errors import UsageError
from trackers.support.optional import need

MASTER = "local[*]"
_TYPES = {
    "string": "string", "long": "bigint", "integer": "int", "double": "double", "timestamp": "timestamp",
    "array<string>": "array<string>", "binary": "binary", "boolean": "boolean",
}  # fmt: skip
_SCHEMES = {"s3": "s3a", "az": "abfs"}


def run(query: str, views: LakeViews, master: str = "") -> Any:
    """The result of a query as an Arrow table.

    Args:
        master: Spark's, as in ``local[4]`` or ``spark://host:7077``; default all cores of this machine. Where this
            process has a session already, that one is used.

    Raises:
        MissingPackage: pyspark isn't installed. UsageError: Spark or Java can't be started, or the query can't be run.
    """
    need("pyspark", "sql --engine spark")
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    session = active if active is not None else _started(master or MASTER)
    zone = session.conf.get("spark.sql.session.timeZone")
    try:
        session.conf.set("spark.sql.session.timeZone", "UTC")
        for name, rows in views.helpers().items():
            columns = ", ".join(f"{column} string" for column in rows.column_names)
            values = [tuple(row.values()) for row in rows.to_pylist()]
            session.createDataFrame(values, columns).createOrReplaceTempView(name)
        for view in views.views():
            _rows(session, views, view).createOrReplaceTempView(f"{RAW}{view.table}")
            session.sql(view.query).createOrReplaceTempView(view.table)
        return session.sql(query).toArrow()
    except PySparkException as error:
        raise UsageError(f"sql: {_short_message(error)}") from None
    finally:
        if active is None:
            session.stop()
        else:
            session.conf.set("spark.sql.session.timeZone", zone)


def _started(master: str) -> Any:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false",
    }  # fmt: skip
    builder = SparkSession.builder.appName("trackers sql").master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, OSError, RuntimeError) as error:
        raise UsageError(
            f"sql: Spark can't be started on {master!r} (is Java 17 there?): {_short_message(error)}"
        ) from None


def _rows(session: Any, views: LakeViews, view: View) -> Any:
    kind = ", ".join(f"`{name}` {_TYPES[word]}" for name, word in view.columns)
    if not view.files:
        return session.createDataFrame([], kind)
    return session.read.schema(kind).parquet(*(_path(views, view.table, file) for file in view.files))


def _path(views: LakeViews, table: str, file: Any) -> str:
    """A file's address as Spark takes it, where some signs make a pattern."""
    if views.lake.folder is not None:
        where = f"file://{views.lake.local_path(table, file)}"
    else:
        scheme, _, rest = views.lake.where.partition("://")
        where = f"{_SCHEMES.get(scheme, scheme)}://{rest}/{table}/{file.path}"
    return re.sub(r"([\\*?{}\[\]])", r"\\\1", where)


def _short_message(error: BaseException) -> str:
    """The first lines of what went wrong: Spark's messages go on with a plan and a stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2])[:400] or type(error).__name__
