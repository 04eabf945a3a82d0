"""MLflow's and its database's errors, said in our words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from trackers.errors import Damaged, NotFound, TrackersError, Unavailable, UsageError


@contextlib.contextmanager
def translated(uri: str) -> Iterator[None]:
    """MLflow's and its database's errors as ours."""
    try:
        yield
    except TrackersError:
        raise
    except Exception as error:
        import sqlalchemy.exc
        from mlflow.exceptions import MlflowException

        if not isinstance(error, (MlflowException, sqlalchemy.exc.SQLAlchemyError, OSError)):
            raise
        code = getattr(error, "error_code", "")
        short = " ".join(str(error).split())[:300]
        if code == "RESOURCE_DOES_NOT_EXIST":
            raise NotFound(f"mlflow: {short}") from error
        if code in ("PERMISSION_DENIED", "UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED"):
            raise UsageError(
                f"mlflow: {uri} refused the login (MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_TOKEN): {short}"
            ) from error
        if "attempt to write a readonly database" in short and "INTO experiments" in str(error):
            raise UsageError(
                f"mlflow: {uri} lacks the experiment 'Default', which MLflow adds, and is only read here: "
                f"MLFLOW_TRACKING_URI={uri} mlflow experiments search"
            ) from error
        other = ("out-of-date database schema", "Can't locate revision", "attempt to write a readonly database")
        if any(text in short for text in other):
            raise UsageError(
                f"mlflow: {uri} belongs to another version of MLflow: install that one, or read a copy that you "
                f"upgraded: mlflow db upgrade sqlite:///COPY.db"
            ) from error
        if "malformed" in short or "not a database" in short:
            raise Damaged(f"mlflow: {uri} is damaged: {short}") from error
        raise Unavailable(f"mlflow: {uri} can't be read: {short}") from error
