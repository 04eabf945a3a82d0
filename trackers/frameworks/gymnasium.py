"""Gymnasium: what the distribution ``trackers-frameworks`` has for it."""

from trackers.frameworks import elsewhere

with elsewhere.named(__name__):
    from trackers_frameworks.gymnasium import TrackersVectorWrapper as TrackersVectorWrapper
    from trackers_frameworks.gymnasium import TrackersWrapper as TrackersWrapper
    from trackers_frameworks.gymnasium import settings as settings
