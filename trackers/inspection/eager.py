"""Running what torch.compile has made as it was written, for a while: hooks see nothing of the compiled code."""

from __future__ import annotations

from typing import Any, ClassVar


class Eager:
    """One that may ask for it. torch has one stance for the process: it is left when nobody asks any more.

    torch 2.6 or later can; with an earlier one compiled layers aren't looked at.
    """

    _asking: ClassVar[set[int]] = set()
    _stance: ClassVar[Any] = None

    def hold(self, torch: Any) -> None:
        """From now on, until ``release``."""
        set_stance = getattr(torch.compiler, "set_stance", None)
        if set_stance is None or id(self) in Eager._asking:
            return
        if not Eager._asking:
            try:
                Eager._stance = set_stance("force_eager")
            except RuntimeError:  # called from within a compiled region
                return
        Eager._asking.add(id(self))

    def release(self) -> None:
        """Not any more."""
        if id(self) not in Eager._asking:
            return
        Eager._asking.discard(id(self))
        if not Eager._asking:
            stance, Eager._stance = Eager._stance, None
            stance.__exit__(None, None, None)
