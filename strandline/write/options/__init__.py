"""Options of a client, and what they mean for a table: settings, parsing, refusals.

Declarations of settings (``settings``, ``index_settings``, ``time_settings``), the parser of what
a caller passes (``client_options``), and the comparison of options with the properties of a table.
Nothing here reads or writes storage.
"""
