"""scikit-learn: what the distribution ``trackers-frameworks`` has for it."""

from trackers.frameworks import elsewhere

with elsewhere.named(__name__):
    from trackers_frameworks.sklearn import TrackersLogger as TrackersLogger
    from trackers_frameworks.sklearn import parameters as parameters
