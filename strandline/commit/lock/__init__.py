"""The lock that concurrent writers of a table share, with the lock providers of Hudi.

A provider here and the Hudi provider of the same name exclude each other. This package doesn't
decide when a writer takes the lock or what it does under it.
"""
