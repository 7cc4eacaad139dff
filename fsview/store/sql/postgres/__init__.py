"""Shared stores in PostgreSQL: its tables and statements, transactions and connections."""
