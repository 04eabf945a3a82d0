"""``wandb.Api``: artifacts of the directory of runs. Whatever else W&B's has asks W&B's service, and is refused."""

from __future__ import annotations

from typing import Any

from trackers.training.wandb_arguments import RefusedName


class Api:
    """Finds artifacts of the directory of runs. Arguments are taken for W&B's sake, without meaning here."""

    def __init__(
        self,
        overrides: dict[str, Any] | None = None,
        timeout: int | None = None,
        api_key: str | None = None,
    ) -> None:
        self._project = str((overrides or {}).get("project") or "")

    def artifact(self, name: str, type: str | None = None) -> Any:
        """A version by name, as ``run.use_artifact`` takes it; no run records that it was used.

        Raises:
            NotFound: there is no such version. UsageError: it is of another type, or the name can't be read.
        """
        from trackers.training import artifact_versions

        return artifact_versions.find(None, name, type, self._project)

    def artifacts(self, type_name: str, name: str, per_page: int = 50, tags: Any = None) -> list[Any]:
        """The versions of a name, the newest first.

        Raises:
            NotFound: there is no artifact of that name.
        """
        from trackers.training import artifact_versions

        return artifact_versions.of_name(name, type_name, self._project)

    def artifact_versions(self, type_name: str, name: str, per_page: int = 50) -> list[Any]:
        """``artifacts``, by its older name."""
        return self.artifacts(type_name, name)

    def artifact_exists(self, name: str, type: str | None = None) -> bool:
        """Whether there is that version."""
        from trackers.errors import NotFound, UsageError

        try:
            self.artifact(name, type)
        except (NotFound, UsageError):
            return False
        return True

    def artifact_collection_exists(self, name: str, type: str) -> bool:
        """Whether a version of that name and type was logged."""
        from trackers.errors import NotFound

        try:
            return bool(self.artifacts(type, name))
        except NotFound:
            return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what copy and IPython ask for must be missing
            raise AttributeError(name)
        return RefusedName(f"Api.{name}")
