"""What a store has of a table, from which a restart or another server continues: the record.

``fsview.state`` decides what is recorded and when, under its lock; nothing here calls a table's
storage.
"""
