"""torchtitan: what the distribution ``trackers-frameworks`` has for it."""

from trackers.frameworks import elsewhere

with elsewhere.named(__name__):
    from trackers_frameworks.torchtitan import TrackersLogger as TrackersLogger
    from trackers_frameworks.torchtitan import install as install
    from trackers_frameworks.torchtitan import settings as settings
