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


_FALSE: Final = ("false",)
_TRUE: Final = ("true",)
_MERGERS: Final = (
    "org.apache.hudi.common.model.hoodieavrorecordmerger",
    "org.apache.hudi.hoodiesparkrecordmerger",
    "org.apache.hudi.defaultsparkrecordmerger",
)


def _entry(names: str, reason: str, asks_nothing: tuple[str, ...] = ()) -> HudiOption:
    """Return the entry of names that are separated by spaces, without ``hoodie.``."""
    return HudiOption(tuple(f"hoodie.{name}" for name in names.split()), reason, asks_nothing)


REFUSED: Final = (
    _entry(
        "base.path",
        "the base path is an argument of WriteClient",
    ),
    _entry(
        "datasource.overwrite.mode static.overwrite.partition.paths "
        "bulkinsert.overwrite.operation.type",
        "the methods insert_overwrite and insert_overwrite_table overwrite partitions",
    ),
    _entry(
        "datasource.write.partitions.to.delete",
        "the partitions are an argument of the method delete_partition",
    ),
    _entry(
        "schema.on.read.enable",
        "schemas evolve by the options of the write; the schema's history isn't kept",
        _FALSE,
    ),
    _entry(
        "avro.schema write.schema bulkinsert.schema.ddl internal.schema",
        "the schema is that of the table, or of the first rows",
    ),
    _entry(
        "datasource.write.insert.drop.duplicates",
        "inserts aren't compared with stored rows; use upsert",
        _FALSE,
    ),
    _entry(
        "datasource.insert.dup.policy",
        "inserts aren't compared with stored rows; use upsert",
        ("none",),
    ),
    _entry(
        "merge.allow.duplicate.on.inserts",
        "inserts aren't compared with stored rows; use upsert",
        _TRUE,
    ),
    _entry(
        "datasource.write.keygenerator.consistent.logical.timestamp.enabled "
        "datasource.write.slash.separated.date.partitioning assume.date.partitioning",
        "keys and paths are the values as Hudi writes them by default",
        _FALSE,
    ),
    _entry(
        "write.complex.keygen.new.encoding",
        "the form of keys is that of the table's stored keys",
    ),
    _entry(
        "keygen.datetime.parser.class deltastreamer.keygen. streamer.keygen.",
        "times are read by hoodie.keygen.timebased.*; derive a column in the frame",
    ),
    _entry(
        "payload.delete.field payload.delete.marker record.merge.property.",
        "rows that delete are marked by the column _hoodie_is_deleted, and as the table's own"
        " properties say",
    ),
    _entry(
        "payload.update.on.same.ordering.field",
        "of two rows with equal ordering values the newer wins",
        _TRUE,
    ),
    _entry(
        "datasource.write.record.merger.impls write.record.merge.custom.implementation.classes",
        "custom merging isn't supported; set hoodie.record.merge.mode",
        _MERGERS,
    ),
    _entry(
        "datasource.write.record.merger.strategy compaction.record.merger.strategy "
        "record.merge.strategy.id write.record.merge.strategy.id write.merge.handle.class "
        "write.concat.handle.class",
        "custom merging isn't supported; set hoodie.record.merge.mode",
    ),
    _entry(
        "table.partial.update.mode write.partial.update.",
        "rows are replaced as a whole, unless the table's own properties say otherwise",
    ),
    _entry(
        "index.class index.hbase. datasource.write.secondarykey.column expression.index.",
        "set hoodie.index.type to one of the writer's own indexes",
    ),
    _entry(
        "bucket.index.partition.",
        "all partitions have the same number of buckets",
    ),
    _entry(
        "clustering.inline clustering.schedule.inline clustering.async.enabled "
        "datasource.clustering.inline.enable datasource.clustering.async.enable "
        "layout.optimize.enable",
        "the writer doesn't cluster; run Hudi's clustering between writes",
        _FALSE,
    ),
    _entry(
        "bulkinsert.user.defined.partitioner. storage.layout.partitioner.class",
        "custom partitioners aren't supported; partition and sort the frame",
    ),
    _entry(
        "clean.partition.filter.regex clean.partition.filter.selected "
        "cleaner.partition.filter.regex cleaner.partition.filter.selected",
        "a clean covers the whole table",
    ),
    _entry(
        "table.services.enabled",
        "to write without cleaning set hoodie.clean.automatic=false",
        _TRUE,
    ),
    _entry(
        "table.service.manager.enabled partition.ttl.inline",
        "the writer's only table services are rollback and clean",
        _FALSE,
    ),
    _entry(
        "datasource.hive_sync.enable datasource.meta.sync.enable",
        "the writer doesn't sync catalogs; run Hudi's sync tool after the write",
        _FALSE,
    ),
    _entry(
        "metrics.on",
        "the writer reports no metrics; WriteResult has the counts",
        _FALSE,
    ),
    _entry(
        "write.commit.callback.on errortable.enable write.ignore.failed",
        "a write is committed as a whole, and WriteResult describes it",
        _FALSE,
    ),
    _entry(
        "client.init.callback.classes precommit.validators prewrite.validators",
        "classes of Java can't be called; check the frame before the write",
        ("",),
    ),
    _entry(
        "auto.commit",
        "every write is committed",
        _TRUE,
    ),
    _entry(
        "allow.empty.commit",
        "every write is committed, even without rows",
        _TRUE,
    ),
    _entry(
        "datasource.write.commitmeta.key.prefix",
        "pass what the commit is to hold as extra_metadata",
        ("_",),
    ),
    _entry(
        "table.cdc.enabled allow.operation.metadata.field",
        "change data capture isn't supported",
        _FALSE,
    ),
    _entry(
        "bootstrap.",
        "tables can't be bootstrapped",
    ),
    _entry(
        "table.base.file.format base.file.format",
        "base files are Parquet",
        ("parquet",),
    ),
    _entry(
        "partition.metafile.use.base.format",
        "partition metadata is a text file",
        _FALSE,
    ),
    _entry(
        "parquet.outputtimestamptype",
        "timestamps are microseconds",
        ("timestamp_micros",),
    ),
    _entry(
        "parquet.writelegacyformat.enabled",
        "lists have three levels, decimals a fixed length",
        ("false", "auto"),
    ),
    _entry(
        "timeline.layout.version",
        "it follows from hoodie.write.table.version",
    ),
)
"""Options that ask for features this writer lacks."""

WITHOUT_EFFECT: Final = (
    _entry(
        "archive.async",
        "an archival follows a write",
        _FALSE,
    ),
    _entry(
        "prewrite.cleaner.policy",
        "a clean follows a write",
        ("none",),
    ),
    _entry(
        "metadata.index.column.stats.enable metadata.index.partition.stats.enable "
        "metadata.index.bloom.filter.enable metadata.record.index.enable "
        "metadata.global.record.level.index.enable metadata.record.level.index.enable "
        "metadata.index.secondary.enable metadata.index.expression.enable",
        "the writer keeps no metadata table, and so none of its indexes",
        _FALSE,
    ),
    _entry(
        "copyonwrite.insert.auto.split",
        "files are filled up to hoodie.parquet.max.file.size",
        _TRUE,
    ),
    _entry(
        "parquet.page.size parquet.dictionary.enabled",
        "each column's pages and dictionary follow from its values",
        (*_TRUE, "1048576"),
    ),
    _entry(
        "write.track.event.time.watermark rollback.instant.backup.enabled",
        "commits hold no event times, and a rollback leaves no copies",
        _FALSE,
    ),
)
"""Options whose missing effect doesn't change rows: ignored with a warning."""

HARMLESS: Final = (
    _entry(
        "upsert.shuffle.parallelism insert.shuffle.parallelism bulkinsert.shuffle.parallelism "
        "delete.shuffle.parallelism finalize.write.parallelism markers.delete.parallelism "
        "rollback.parallelism file.listing.parallelism simple.index. global.simple.index. "
        "global.index. bloom.index. record.index. bucket.index. write.status.storage.level "
        "write.tagged.record.storage.level write.executor. write.buffer. memory. common. "
        "datasource.write.row.writer.enable combine.before.delete copyonwrite.insert.",
        "tuning of Hudi's own execution; here Spark's settings decide",
    ),
    _entry(
        "parquet.compression.ratio "
        "parquet.field_id.write.enabled "
        "parquet.write.utc-timezone.enabled orc. hfile. lance. record.size.estimator. hbase.",
        "details of Hudi's own writers of files, or of file formats and indexes that aren't used",
    ),
    _entry(
        "compact. compaction. datasource.compaction. log.compaction. logfile. "
        "merge.use.record.positions write.record.positions optimized.log.blocks.scan.enable",
        "details of Hudi's own compactions; of merge-on-read tables, log compactions are refused",
    ),
    _entry(
        "archive. archivelog.",
        "an archival never passes the last clean's earliest instant, and merges files by itself",
    ),
    _entry(
        "clean.incremental.enabled clean.multiple.enabled "
        "clean.allow.multiple clean.trigger.strategy clean.delete.bootstrap.base.file "
        "clean.optimize.using.local.engine.context cleaner.incremental.mode "
        "cleaner.delete.bootstrap.base.file",
        "a clean is incremental and follows a write",
    ),
    _entry(
        "clustering. layout.optimize.",
        "the writer doesn't cluster",
    ),
    _entry(
        "metadata.",
        "the writer keeps no metadata table",
    ),
    _entry(
        "datasource.hive_sync. datasource.hive_sync.table datasource.meta.sync. "
        "datasource.meta_sync. meta.sync. meta_sync. datasource.partition_extractor_class "
        "table.partition_extractor_class gcp. datahub. adb. aws.",
        "only for syncing catalogs, which is refused",
    ),
    _entry(
        "metrics. write.commit.callback. errortable. table.service.manager. partition.ttl. "
        "table.cdc. precommit.validators.",
        "only for features that are refused",
    ),
    _entry(
        "datasource.read. datasource.query. datasource.streaming. datasource.write.streaming. "
        "datasource.merge.type datasource.view.type query.as.ro.table realtime.merge.skip read. "
        "fileIndex. file.group.reader.enabled incremental.use.database enable.data.skipping "
        "file.index. sql. spark.sql. deltastreamer. streamer.",
        "only for reading, for Spark SQL, for streaming sinks and for Hudi Streamer",
    ),
    _entry(
        "skip.default.partition.validation merge.data.validation.enabled sensitive.config.keys "
        "post.commit.failures.ignored write.can.ignore.post.commit.failures "
        "rollback.instant.backup. rollback.avoid.duplicate.plan "
        "write.auto.upgrade write.complex.keygen.validation.enable "
        "payload.event.time.field rollback.using.markers "
        "consistency.check. filesystem. embed.timeline.server.async "
        "markers.timeline_server_based. fail.on.timeline.archiving "
        "release.resource.on.completion.enable schema.cache.enable",
        "checks that are always made, or mechanisms that this writer doesn't need",
    ),
)
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
