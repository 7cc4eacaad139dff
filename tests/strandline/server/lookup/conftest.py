"""The tests of this folder write tables in memory."""

from tests.kit.tables.memory_dir import memory, tmp_path  # noqa: F401
