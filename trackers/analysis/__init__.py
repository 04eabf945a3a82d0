"""Analysis of runs that were read: reports, comparisons, results."""
