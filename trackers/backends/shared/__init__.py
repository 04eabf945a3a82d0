"""Code shared by trackers: directories, files that only grow, JSON documents, media as files."""
