"""Base files: Parquet with the meta columns first, and Hudi's keys and Bloom filter in the footer.

Reading and writing of one file, and the search for keys in it (``key_search``). Other packages
decide which file a row goes to, and which stored row is kept.
"""
