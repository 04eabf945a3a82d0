"""A lake: runs as Delta tables on Parquet, in a directory or a store, that other engines read, too."""
