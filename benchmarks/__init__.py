"""The figures that the package promises, measured as ratios inside one run, so that the machine cancels out."""
