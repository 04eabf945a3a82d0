"""The local live page over runs: ``trackers ui``."""
