"""LightGBM: what the distribution ``trackers-frameworks`` has for it."""

from trackers.frameworks import elsewhere

with elsewhere.named(__name__):
    from trackers_frameworks.lightgbm import TrackersCallback as TrackersCallback
