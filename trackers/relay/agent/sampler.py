"""The sampler that the runs of an agent share."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from trackers.journal import forked_helper
from trackers.relay.agent.listener import Listener


class SharedSampler(Listener):
    """A fork of this process that samples for all runs, while one wants it. A driver may hang it.

    Args:
        entry: main function of the forks.
    """

    def __init__(self, entry: forked_helper.Entry) -> None:
        super().__init__(entry, "sampler")

    def hand_over(self, request: bytes, descriptors: Sequence[int], library_fds: Collection[int]) -> None:
        """Have a run sampled.

        Args:
            request: a :class:`trackers.relay.sampling.many.SamplingRequest`, as JSON.
            descriptors: the connection to the run's relay, and the pipe that it reads; they stay open here.
            library_fds: descriptors that libraries hold.

        Raises:
            OSError: it can't be started, or accepts nothing.
        """
        self.poll()
        if not self.is_started:
            self.start(library_fds=library_fds)
        self.send(request, descriptors)
