"""The trackers that come with the package: one module each."""
