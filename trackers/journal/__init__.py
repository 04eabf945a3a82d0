"""A run on disk: its directory, its streams of records, who writes and delivers it, and how it stands."""
