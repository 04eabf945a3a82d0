"""What is made of runs that were read: reports, comparisons, results."""
