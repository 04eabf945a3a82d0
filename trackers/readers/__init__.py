"""Every tracker as a source: each reader yields the records that trackers accept."""
