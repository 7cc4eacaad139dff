"""Engines run the tasks of a write: in this process, on PySpark, or in the driver as far as it can.

The contract (``base``), its implementations (``local``, ``spark``, ``driver``), and what these are
built of: conversion of the caller's rows, threads, joins, Spark partition keys. Only ``spark``
imports pyspark. What a task does with rows belongs to ``strandline.write.tasks``.
"""
