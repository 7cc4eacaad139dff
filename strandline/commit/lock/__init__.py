"""The lock that concurrent writers of a table share, with the lock providers of Hudi.

A provider here and the Hudi provider of the same name exclude each other. When a writer takes the
lock, and what it does meanwhile, isn't decided here.
"""
