"""XGBoost: what the distribution ``trackers-frameworks`` has for it."""

from trackers.frameworks import elsewhere

with elsewhere.named(__name__):
    from trackers_frameworks.xgboost import TrackersCallback as TrackersCallback
    from trackers_frameworks.xgboost import larger_is_better as larger_is_better
    from trackers_frameworks.xgboost import parameters as parameters
