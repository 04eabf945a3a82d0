"""What exactly ran: a run's own source, its repository, its packages, its command; recorded beside training."""
