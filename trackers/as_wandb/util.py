"""The part of ``wandb.util`` that scripts use."""

from __future__ import annotations

import re
import secrets
import string

__all__ = ["generate_id", "make_artifact_name_safe"]


def generate_id(length: int = 8) -> str:
    """A random id for a run: lower-case letters and digits."""
    return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(length))


def make_artifact_name_safe(name: str) -> str:
    """An artifact's name of letters, digits, "_", "-" and ".", of 128 characters at most, its middle left out."""
    cleaned = re.sub(r"[^a-zA-Z0-9_\-.]", "_", name)
    return cleaned if len(cleaned) <= 128 else cleaned[:63] + ".." + cleaned[-63:]
