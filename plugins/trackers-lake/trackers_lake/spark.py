"""SQL over a lake on Spark: the views of :mod:`trackers_lake.sql`, read by Spark's executors.

Spark is told the Parquet files that the tables consist of now, as their logs say: it needs no package for Delta tables.
A store's files are read as Spark reads that store: ``s3://`` becomes ``s3a://``, whose package and keys are Spark's own
settings (``SPARK_CONF_DIR``, ``spark-defaults.conf``).

Spark itself would read any file (``csv.`/etc/passwd` ``), run programs (``TRANSFORM … USING``), call Java's methods
(``reflect``) and put the environment into a query (``${env:…}``). So a query is run only if its plan, as Spark's own
parser makes it, consists of what asks the lake's tables.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator
from typing import Any

from trackers.errors import UsageError
from trackers.support.optional import need
from trackers.support.secret_names import word_set
from trackers_lake.schema import COLUMNS
from trackers_lake.sql import RAW, LakeViews, View

MASTER = "local[*]"
_TYPES = {
    "string": "string", "long": "bigint", "integer": "int", "double": "double", "timestamp": "timestamp",
    "array<string>": "array<string>", "binary": "binary", "boolean": "boolean",
}  # fmt: skip
_PLANS = word_set(
    "Aggregate Distinct Except Filter Generate GlobalLimit Intersect Join LateralJoin LocalLimit LocalRelation Offset "
    "OneRowRelation PipeOperator Pivot Project RepartitionByExpression Sample Sort SubqueryAlias Union Unpivot "
    "UnresolvedHaving UnresolvedHint UnresolvedInlineTable UnresolvedRelation UnresolvedSubqueryColumnAliases "
    "UnresolvedTVFAliases UnresolvedTableValuedFunction UnresolvedWith Window WithWindowDefinition"
)
"""Parts of plans that ask."""
_TABLE_FUNCTIONS = word_set(
    "range explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack"
)
_REACHING = re.compile(r"reflect|try_reflect|java_method|xpath.*|.*from_xml|schema_of_xml|.*_(avro|protobuf)")
"""Functions that reach beyond the tables: Java's methods, and formats that can name files of a schema."""
_SCHEMES = {"s3": "s3a", "az": "abfs"}


def run(query: str, views: LakeViews, master: str = "") -> Any:
    """The result of a query as an Arrow table.

    Args:
        master: Spark's, as in ``local[4]`` or ``spark://host:7077``; default all cores of this machine. Where this
            process has a session already, that one is used.

    Raises:
        MissingPackage: pyspark isn't installed. UsageError: Spark or Java can't be started, or the query can't be run,
            or does more than ask the lake's tables.
    """
    need("pyspark", "sql --engine spark")
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    session = active if active is not None else _started(master or MASTER)
    before = {name: session.conf.get(name) for name in _SETTINGS}
    try:
        for name, value in _SETTINGS.items():
            session.conf.set(name, value)
        _need_confined(session, query)
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
            for name, value in before.items():
                session.conf.set(name, value)


_SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.variable.substitute": "false"}
"""How queries are read: times of UTC, and no ``${env:…}``."""


def _need_confined(session: Any, query: str) -> None:
    """Raise UsageError unless the query asks the lake's tables and nothing else.

    Raises:
        PySparkException: the query can't be parsed.
    """
    parser = getattr(session, "_jsparkSession", None)
    if parser is None:
        raise UsageError(
            "sql: a session of Spark Connect can't be confined to the lake's tables: give a master instead"
        )
    names, asked = set(COLUMNS), []
    for plan in _nodes(session, parser.sessionState().sqlParser().parsePlan(query)):
        kind = _class_of(plan)
        if _is(session, plan, "org.apache.spark.sql.catalyst.expressions.Expression"):
            _need_harmless(plan, kind)
        elif kind not in _PLANS:
            raise UsageError(f"sql: {kind} isn't run: a query reads the lake's tables, and no more")
        elif kind == "UnresolvedRelation":
            asked.append(tuple(_each(plan.multipartIdentifier())))
        elif kind == "UnresolvedWith":
            names.update(_own_name(session, alias) for alias in _each(plan.innerChildren()))
        elif kind == "UnresolvedTableValuedFunction":
            _need_known([name.lower() for name in _each(plan.name())], _TABLE_FUNCTIONS)
    for parts in asked:
        _need_known([part.lower() for part in parts], names)


def _nodes(session: Any, plan: Any) -> Iterator[Any]:
    """All plans and expressions of a plan, in whatever field of one they stand.

    Spark's own lists of them lack some: a window's definition is in none.
    """
    waiting = [plan]
    while waiting:
        part = waiting.pop()
        if _is(session, part, "scala.collection.Iterable"):
            fields = part.iterator()
        elif _is(session, part, "scala.Product"):
            if _is(session, part, "org.apache.spark.sql.catalyst.trees.TreeNode"):
                yield part
            fields = part.productIterator()
        else:
            continue
        while fields.hasNext():
            waiting.append(fields.next())


def _is(session: Any, part: Any, kind: str) -> bool:
    from py4j.java_gateway import JavaObject, is_instance_of

    return isinstance(part, JavaObject) and bool(is_instance_of(session.sparkContext._gateway, part, kind))


def _own_name(session: Any, alias: Any) -> str:
    """The name that a query gives a part of its own (``WITH name AS``), where the session has nothing of that name.

    Elsewhere in the query it may stand for what the session has: a table of the warehouse, or a view.
    """
    name = str(alias.identifier().name()).lower()
    if name not in COLUMNS and session.catalog.tableExists("`" + name.replace("`", "``") + "`"):
        raise UsageError(f"sql: Spark has a table {name[:80]!r} already: give that part of the query another name")
    return name


def _need_known(parts: list[str], names: Container[str]) -> None:
    if len(parts) != 1 or parts[0] not in names:
        raise UsageError(f"sql: {'.'.join(parts)[:80]!r} isn't one of the lake's tables: {', '.join(COLUMNS)}")


def _need_harmless(part: Any, kind: str) -> None:
    """Raise UsageError if an expression reaches beyond the tables."""
    parts = _each(part.nameParts()) if kind == "UnresolvedFunction" else []
    if kind == "UnresolvedGenerator":
        parts = [part.name().funcName()]
    if len(parts) > 1 or any(_REACHING.fullmatch(name.lower()) for name in parts) or "UnresolvedIdentifier" in kind:
        raise UsageError(f"sql: {'.'.join(parts)[:80] or kind!r} isn't run: it reaches beyond the lake's tables")


def _class_of(node: Any) -> str:
    return str(node.getClass().getName()).rpartition(".")[2].rstrip("$")


def _each(sequence: Any) -> list[Any]:
    """What a sequence of Scala's holds."""
    return [sequence.apply(number) for number in range(sequence.size())]


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
