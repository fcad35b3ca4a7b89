"""HOP result files in numbers: the data store over a folder of them."""
