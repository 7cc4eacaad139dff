"""Rows, for readers and the writer: the merge rule, the order of rows, meta columns.

Code that defines how a row is keyed (``key``), typed (``schema``), merged (``merge``) or stored
(``file``) belongs here. It begins no instant and depends on no engine.
"""
