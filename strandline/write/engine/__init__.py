"""Engines run the tasks of a write: in this process, on PySpark, or in the driver while it can.

The contract (``base``), its implementations (``local``, ``spark``, ``driver``), and their building
blocks: conversion of the caller's rows, threads, joins, Spark partition keys. Only ``spark``
imports pyspark. The work of a task on rows belongs to ``strandline.write.tasks``.
"""
