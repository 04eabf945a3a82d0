"""Log a training run once; every tracker gets all of it, none of them can hurt the training, nothing is lost."""
