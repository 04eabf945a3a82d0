"""What becomes of finished runs: their sizes, archives, deletion, and the logs that lie about."""
