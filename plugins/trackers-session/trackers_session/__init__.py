"""Session logs as a tracker: a directory of logs and summaries for each session."""
