"""What ``init`` says where Aim can't be used."""

from __future__ import annotations

import pytest

from trackers.backends import registry
from trackers.errors import MissingPackage


def test_missing_package_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says what is missing, and what installs it."""
    monkeypatch.setattr(registry, "found_package", lambda name: name != "aim")
    with pytest.raises(
        MissingPackage,
        match=r"^tracker 'aim' needs the aim package: pip install 'trackers-relay\[aim\]', or trackers setup aim$",
    ):
        registry.check("aim", {})
