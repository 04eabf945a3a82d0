"""What ``init`` says where Aim can't be used, and what is installed for it."""

from __future__ import annotations

import re

import pytest

from trackers.backends import registry
from trackers.errors import MissingPackage
from trackers.support import environments


def test_missing_package_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says what is missing, and what installs it."""
    monkeypatch.setattr(registry, "found_package", lambda name: name != "aim")
    with pytest.raises(
        MissingPackage,
        match=r"^tracker 'aim' needs the aim package: pip install 'trackers-relay\[aim\]', or trackers setup aim$",
    ):
        registry.check("aim", {})


def test_environment_of_its_own_has_aims_packages() -> None:
    """`trackers setup aim` installs this distribution as it is here, and Aim's client, which it doesn't need itself."""
    wanted = environments.requirements("aim", registry.distribution("aim"))
    names = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in wanted]
    assert {"msgspec", "aim", "aimrocks", "pillow"} <= set(names)
    assert [line for line in wanted if line.startswith("trackers-")] == ["trackers-aim==0.1.0"]
