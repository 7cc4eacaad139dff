"""Shared stores in SQLite: its tables and statements, transactions and the file."""
