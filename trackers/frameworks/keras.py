"""Keras: what the distribution ``trackers-frameworks`` has for it."""

from trackers.frameworks import elsewhere

with elsewhere.named(__name__):
    from trackers_frameworks.keras import TrackersCallback as TrackersCallback
    from trackers_frameworks.keras import settings as settings
