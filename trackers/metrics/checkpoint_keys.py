"""Names of the values that a saved checkpoint is recorded by, at its step.

``checkpoint/samples``, ``tokens`` and ``flops`` (floating-point operations) are what training has gone through so far,
earlier starts included; ``checkpoint/job-flops`` is this start's own part.
"""

from __future__ import annotations

ITERATION = "checkpoint/iteration"
SAMPLES = "checkpoint/samples"
TOKENS = "checkpoint/tokens"
FLOPS = "checkpoint/flops"
JOB_FLOPS = "checkpoint/job-flops"
