from fsview.snapshot.delta import delta_of
from timeline.metadata.instant_metadata import CommitMetadata, WriteStat

EXTENSIONS = (".parquet",)


def test_a_log_that_was_appended_to_is_as_long_as_the_append_ends() -> None:
    """Hudi records an append with its own length and the offset at which it begins."""
    name = ".f1-0_20260101000000000.log.1_0-1-2"
    stat = WriteStat("f1-0", f"a/{name}", file_size_in_bytes=30, log_version=1, log_offset=100)
    delta = delta_of(CommitMetadata({"a": (stat,)}, operation_type="UPSERT"), EXTENSIONS)
    (log,) = delta.partitions["a"].added
    assert (log.name, log.size) == (name, 130)
    assert delta.partitions["a"].extended == {name}
