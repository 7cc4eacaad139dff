"""Avro records decoded into Arrow: many at once by columns, with numpy."""
