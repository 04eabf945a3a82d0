"""Stable-Baselines3: what the distribution ``trackers-frameworks`` has for it."""

from trackers.frameworks import elsewhere

with elsewhere.named(__name__):
    from trackers_frameworks.stable_baselines3 import TrackersCallback as TrackersCallback
    from trackers_frameworks.stable_baselines3 import TrackersOutputFormat as TrackersOutputFormat
    from trackers_frameworks.stable_baselines3 import settings as settings
