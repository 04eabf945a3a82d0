"""What names of metrics and settings say, whichever program chose them: used by trackers and by analysis."""
