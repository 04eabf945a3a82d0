"""What several trackers use: directories, files that only grow, JSON documents, media as files."""
