"""Options of Hudi that jobs pass and for which this writer has no setting.

An option that asks for a feature the writer lacks is refused with the reason, unless its value
turns the feature off. If rows are correct without the option, but the table's size or layout
differs, the option is ignored with a warning. An option that changes neither is harmless. A name
that ends with a dot stands for all names with this prefix; the longest matching entry decides.
``strandline.write.options.client_options`` applies the lists.

Source: Hudi 1.2.0 and 0.15.0 ``DataSourceWriteOptions``, ``HoodieWriteConfig`` and the classes that
``HoodieWriteConfig`` includes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class HudiOption:
    """One entry of a list.

    Attributes:
        names: Full names, or prefixes that end with a dot.
        reason: Why the options are refused or ignored; shown after a colon.
        asks_nothing: Values, in lower case, that turn the feature off.
    """

    names: tuple[str, ...]
    reason: str
    asks_nothing: tuple[str, ...] = ()

    def asks(self, value: str) -> bool:
        """Whether the value asks for a feature that the writer lacks."""
        return value.strip().lower() not in self.asks_nothing


def _entries(table: str) -> tuple[HudiOption, ...]:
    """Return the entries of a table: names without ``hoodie.``, then, indented, the reason.

    Values that turn the feature off follow the names, after ``=``, separated by commas.
    """
    entries: list[HudiOption] = []
    found = re.findall(r"((?:^\S.*\n)+)((?:^ .*\n)+)", table, re.MULTILINE)
    assert "".join(head + reason for head, reason in found) == table, "a line belongs to no entry"
    for head, reason in found:
        names, has_values, values = head.partition("=")
        asks_nothing = tuple(map(str.strip, values.split(","))) if has_values else ()
        full = tuple(f"hoodie.{name}" for name in names.split())
        entries.append(HudiOption(full, " ".join(reason.split()), asks_nothing))
    return tuple(entries)


REFUSED: Final = _entries("""\
base.path
    the base path is an argument of WriteClient
datasource.overwrite.mode static.overwrite.partition.paths bulkinsert.overwrite.operation.type
    the methods insert_overwrite and insert_overwrite_table overwrite partitions
datasource.write.partitions.to.delete
    the partitions are an argument of the method delete_partition
schema.on.read.enable = false
    schemas evolve by the options of the write; the schema's history isn't kept
avro.schema write.schema bulkinsert.schema.ddl internal.schema
    the schema is that of the table, or of the first rows
datasource.write.insert.drop.duplicates = false
    inserts aren't compared with stored rows; use upsert
datasource.insert.dup.policy = none
    inserts aren't compared with stored rows; use upsert
merge.allow.duplicate.on.inserts = true
    inserts aren't compared with stored rows; use upsert
datasource.write.keygenerator.consistent.logical.timestamp.enabled
datasource.write.slash.separated.date.partitioning assume.date.partitioning = false
    keys and paths are the values as Hudi writes them by default
write.complex.keygen.new.encoding
    the form of keys is that of the table's stored keys
keygen.datetime.parser.class deltastreamer.keygen. streamer.keygen.
    times are read by hoodie.keygen.timebased.*; derive a column in the frame
payload.delete.field payload.delete.marker record.merge.property.
    rows that delete are marked by the column _hoodie_is_deleted, and as the table's own properties
    say
payload.update.on.same.ordering.field = true
    of two rows with equal ordering values the newer wins
datasource.write.record.merger.impls write.record.merge.custom.implementation.classes =
org.apache.hudi.common.model.hoodieavrorecordmerger, org.apache.hudi.hoodiesparkrecordmerger,
org.apache.hudi.defaultsparkrecordmerger
    custom merging isn't supported; set hoodie.record.merge.mode
datasource.write.record.merger.strategy compaction.record.merger.strategy record.merge.strategy.id
write.record.merge.strategy.id write.merge.handle.class write.concat.handle.class
    custom merging isn't supported; set hoodie.record.merge.mode
table.partial.update.mode write.partial.update.
    rows are replaced as a whole, unless the table's own properties say otherwise
index.class index.hbase. datasource.write.secondarykey.column expression.index.
    set hoodie.index.type to one of the writer's own indexes
bucket.index.partition.
    all partitions have the same number of buckets
clustering.inline clustering.schedule.inline clustering.async.enabled
datasource.clustering.inline.enable datasource.clustering.async.enable layout.optimize.enable =
false
    the writer doesn't cluster; run Hudi's clustering between writes
bulkinsert.user.defined.partitioner. storage.layout.partitioner.class
    custom partitioners aren't supported; partition and sort the frame
clean.partition.filter.regex clean.partition.filter.selected cleaner.partition.filter.regex
cleaner.partition.filter.selected
    a clean covers the whole table
table.services.enabled = true
    to write without cleaning set hoodie.clean.automatic=false
table.service.manager.enabled partition.ttl.inline = false
    the writer's only table services are rollback and clean
datasource.hive_sync.enable datasource.meta.sync.enable = false
    the writer doesn't sync catalogs; run Hudi's sync tool after the write
metrics.on = false
    the writer reports no metrics; WriteResult has the counts
write.commit.callback.on errortable.enable write.ignore.failed = false
    a write is committed as a whole, and WriteResult describes it
client.init.callback.classes precommit.validators prewrite.validators =
    classes of Java can't be called; check the frame before the write
auto.commit = true
    every write is committed
allow.empty.commit = true
    every write is committed, even without rows
datasource.write.commitmeta.key.prefix = _
    pass what the commit is to hold as extra_metadata
table.cdc.enabled allow.operation.metadata.field = false
    change data capture isn't supported
bootstrap.
    tables can't be bootstrapped
table.base.file.format base.file.format = parquet
    base files are Parquet
partition.metafile.use.base.format = false
    partition metadata is a text file
parquet.outputtimestamptype = timestamp_micros
    timestamps are microseconds
parquet.writelegacyformat.enabled = false, auto
    lists have three levels, decimals a fixed length
timeline.layout.version
    it follows from hoodie.write.table.version
""")
"""Options that ask for features this writer lacks."""

WITHOUT_EFFECT: Final = _entries("""\
archive.async = false
    an archival follows a write
prewrite.cleaner.policy = none
    a clean follows a write
metadata.index.column.stats.enable metadata.index.partition.stats.enable
metadata.index.bloom.filter.enable metadata.record.index.enable
metadata.global.record.level.index.enable metadata.record.level.index.enable
metadata.index.secondary.enable metadata.index.expression.enable = false
    the writer keeps no metadata table, and so none of its indexes
copyonwrite.insert.auto.split = true
    files are filled up to hoodie.parquet.max.file.size
parquet.page.size parquet.dictionary.enabled = true, 1048576
    each column's pages and dictionary follow from its values
write.track.event.time.watermark rollback.instant.backup.enabled = false
    commits hold no event times, and a rollback leaves no copies
""")
"""Options whose missing effect doesn't change rows: ignored with a warning."""

HARMLESS: Final = _entries("""\
upsert.shuffle.parallelism insert.shuffle.parallelism bulkinsert.shuffle.parallelism
delete.shuffle.parallelism finalize.write.parallelism markers.delete.parallelism
rollback.parallelism file.listing.parallelism simple.index. global.simple.index. global.index.
bloom.index. record.index. bucket.index. write.status.storage.level
write.tagged.record.storage.level write.executor. write.buffer. memory. common.
datasource.write.row.writer.enable combine.before.delete copyonwrite.insert.
    tuning of Hudi's own execution; here Spark's settings decide
parquet.compression.ratio parquet.field_id.write.enabled parquet.write.utc-timezone.enabled orc.
hfile. lance. record.size.estimator. hbase.
    details of Hudi's own writers of files, or of file formats and indexes that aren't used
compact. compaction. datasource.compaction. log.compaction. logfile. merge.use.record.positions
write.record.positions optimized.log.blocks.scan.enable
    details of Hudi's own compactions; of merge-on-read tables, log compactions are refused
archive. archivelog.
    an archival never passes the last clean's earliest instant, and merges files by itself
clean.incremental.enabled clean.multiple.enabled clean.allow.multiple clean.trigger.strategy
clean.delete.bootstrap.base.file clean.optimize.using.local.engine.context cleaner.incremental.mode
cleaner.delete.bootstrap.base.file
    a clean is incremental and follows a write
clustering. layout.optimize.
    the writer doesn't cluster
metadata.
    the writer keeps no metadata table
datasource.hive_sync. datasource.hive_sync.table datasource.meta.sync. datasource.meta_sync.
meta.sync. meta_sync. datasource.partition_extractor_class table.partition_extractor_class gcp.
datahub. adb. aws.
    only for syncing catalogs, which is refused
metrics. write.commit.callback. errortable. table.service.manager. partition.ttl. table.cdc.
precommit.validators.
    only for features that are refused
datasource.read. datasource.query. datasource.streaming. datasource.write.streaming.
datasource.merge.type datasource.view.type query.as.ro.table realtime.merge.skip read. fileIndex.
file.group.reader.enabled incremental.use.database enable.data.skipping file.index. sql. spark.sql.
deltastreamer. streamer.
    only for reading, for Spark SQL, for streaming sinks and for Hudi Streamer
skip.default.partition.validation merge.data.validation.enabled sensitive.config.keys
post.commit.failures.ignored write.can.ignore.post.commit.failures rollback.instant.backup.
rollback.avoid.duplicate.plan write.auto.upgrade write.complex.keygen.validation.enable
payload.event.time.field rollback.using.markers consistency.check. filesystem.
embed.timeline.server.async markers.timeline_server_based. fail.on.timeline.archiving
release.resource.on.completion.enable schema.cache.enable
    checks that are always made, or mechanisms that this writer doesn't need
""")
"""Options that change neither the rows nor the files of a write."""


def find(name: str, options: tuple[HudiOption, ...]) -> tuple[int, HudiOption] | None:
    """Return length and entry of the longest match; ``None`` if none matches."""
    found = [
        (len(entry), option)
        for option in options
        for entry in option.names
        if name == entry or (entry.endswith(".") and name.startswith(entry))
    ]
    return max(found, key=lambda each: each[0], default=None)
