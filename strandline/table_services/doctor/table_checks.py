"""Checks of the properties, the timeline and what was left in the metadata folders; all pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from strandline.commit.lock.file_system import LOCK_FILE
from strandline.server.marker.heartbeat import HEARTBEAT_FOLDER
from strandline.table_services.doctor.finding import Finding
from strandline.table_services.doctor.picture import DAY_MS, Picture, is_savepoint, is_write
from timeline.clock import parse_instant_time
from timeline.encoding.java_properties import parse_properties
from timeline.instant import RESTORE, ROLLBACK, Instant, State, completed_action
from timeline.layout import TimelineLayout
from timeline.storage.base import FileInfo
from timeline.table import property_name
from timeline.table.config import CONFIG_PATH, META_FOLDER, TableConfig
from timeline.table.config_file import BACKUP_PATH

AHEAD_MS: Final = 5 * 60 * 1000
"""How far ahead of the clock an instant may be: zones differ by a quarter of an hour or more."""
_TEMPORARY: Final = re.compile(
    r".+\.[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(\.tmp)?"
)
_TIME: Final = re.compile(r"\d{17}|\d{14}")
_LAYOUT_OF: Final = {"6": "1", "8": "2", "9": "2"}
"""Table version → layout of its timeline."""


@dataclass(frozen=True, slots=True)
class PropertiesPicture:
    """The files with a table's properties.

    Attributes:
        main: Content of ``hoodie.properties``; ``None`` if there is no such file.
        backup: Content of its backup.
        names: Names of the files in the metadata folder.
        timeline: Names of the files in layout 2's default timeline folder.
    """

    main: bytes | None
    backup: bytes | None
    names: tuple[str, ...] = ()
    timeline: tuple[str, ...] = ()


def check_properties(picture: PropertiesPicture) -> Iterator[Finding]:
    """Yield what is wrong with the properties: missing, unreadable, checksum, layout."""
    main, backup = picture.main, picture.backup
    if main is None and backup is not None:
        what = f"{CONFIG_PATH} isn't there; readers use {BACKUP_PATH}"
        yield Finding("properties-missing", what, (CONFIG_PATH, BACKUP_PATH), len(backup))
    config = usable(picture)
    if config is None:
        data = main if main is not None else backup
        what = f"{CONFIG_PATH} is no properties text that names a table"
        yield Finding("properties-unreadable", what, (CONFIG_PATH,), len(data or b""))
        return
    if main is not None:
        # Another writer's backup is left alone, but not that of a repair that died.
        yield from _checksum(config, len(main), fixable=backup in (None, config.to_bytes()))
    yield from _layout(config, picture)


def usable(picture: PropertiesPicture) -> TableConfig | None:
    """Return the properties, whatever their checksum; the backup's if the file has none."""
    for data in (picture.main, picture.backup):
        if data is not None:
            try:
                config = TableConfig(parse_properties(data))
            except ValueError:
                continue
            if config.properties.get(property_name.NAME):
                return config
    return None


def _checksum(config: TableConfig, size: int, *, fixable: bool) -> Iterator[Finding]:
    stored = config.properties.get(property_name.CHECKSUM)
    if stored is None:
        what = f"it has no {property_name.CHECKSUM}"
        yield Finding("properties-checksum-missing", what, (CONFIG_PATH,), size, fixable=fixable)
    elif stored != config.checksum:
        what = (
            f"{property_name.CHECKSUM} is {stored:.40}; for {config.database:.100}."
            f"{config.name:.100} it is {config.checksum}"
        )
        yield Finding("properties-checksum-wrong", what, (CONFIG_PATH,), size, fixable=fixable)


def _layout(config: TableConfig, picture: PropertiesPicture) -> Iterator[Finding]:
    version = config.properties.get(property_name.VERSION, "")
    layout = config.properties.get(property_name.LAYOUT_VERSION, "")
    right = _LAYOUT_OF.get(version)
    if right is not None and layout != right:
        what = f"version {version} has timeline layout {right}, the properties say"
        yield Finding("timeline-layout-mismatch", f"{what} {layout or 'none'}", (CONFIG_PATH,))
        return
    # The files of one layout in the folder of the other: its readers don't see them.
    other, names, folder = (
        (2, picture.timeline, f"{META_FOLDER}/timeline")
        if layout == "1"
        else (1, picture.names, META_FOLDER)
    )
    parse = TimelineLayout(other, config.timezone, folder).parse
    strays = [name for name in names if parse(name, 0) is not None]
    if strays:
        yield Finding(
            "timeline-layout-mismatch",
            f"{len(strays)} instants' files lie where layout {other} has them, the properties say"
            f" {layout}",
            tuple(f"{folder}/{name}" for name in strays),
        )


# The timeline.


def check_times(picture: Picture) -> Iterator[Finding]:
    """Yield instants in the future, and those that are out of order."""
    zone, config = picture.config.timezone, picture.config
    completions: dict[str, list[Instant]] = defaultdict(list)
    for instant in picture.active:
        name, path = f"{instant.action} {instant.requested_time}", picture.meta.path_of(instant)
        ahead_ms = _time_ms(instant.requested_time, zone) - picture.now_ms
        if ahead_ms > AHEAD_MS:
            what = (
                f"is {ahead_ms / 60_000:.0f} minutes ahead of this machine's clock in zone {zone}"
            )
            yield Finding("future-instant", f"{name} {what}", (path,))
        completed = instant.completion_time
        if config.layout_version == 1 or not instant.is_completed or completed is None:
            continue  # a modification time, which copying changes
        if instant.legacy:
            continue
        if completed <= instant.requested_time:
            what = f"{name} completed at {completed}, not later"
            yield Finding("instants-out-of-order", what, (path,))
        completions[completed].append(instant)
    for completed, together in completions.items():
        if len(together) > 1:
            what = f"{len(together)} instants completed at {completed}, so they have no order"
            yield Finding("instants-out-of-order", what, _paths(picture, *together))


def check_files_of_instants(picture: Picture) -> Iterator[Finding]:
    """Yield damaged files, states without the one before, and instants completed twice."""
    for instant, reason in picture.history.damaged.items():
        yield Finding(
            "broken-instant",
            f"{instant.action} {instant.requested_time} can't be read: {reason:.300}",
            _paths(picture, instant),
            instant.size_bytes or 0,
        )
    archived = picture.archive.timeline
    by_key: dict[tuple[str, str], list[Instant]] = defaultdict(list)
    for instant in picture.files:
        by_key[instant.requested_time, completed_action(instant.action)].append(instant)
    for (time, action), found in by_key.items():
        completed = [instant for instant in found if instant.is_completed]
        if len(completed) > 1:
            yield Finding(
                "instant-completed-twice",
                f"{action} {time} has {len(completed)} completed files",
                tuple(sorted(_paths(picture, *completed))),
                sum(instant.size_bytes or 0 for instant in completed),
            )
        last = max(found, key=lambda instant: instant.state.rank)
        lacking = [
            state.value.lower()
            for state in _before(last)
            if all(instant.state is not state for instant in found)
        ]
        # An archival deletes the files of earlier states first.
        if lacking and not (archived is not None and archived.contains_time(time)):
            yield Finding(
                "missing-predecessor",
                f"{action} {time} is {last.state.value.lower()} without a file of state"
                f" {' and '.join(lacking)}",
                _paths(picture, last),
            )


def _before(instant: Instant) -> Sequence[State]:
    """Return the states that an instant must have passed."""
    if instant.legacy:
        return ()
    first = 1 if is_savepoint(instant) else 0
    return tuple(State)[first : instant.state.rank]


def check_pending(picture: Picture) -> Iterator[Finding]:
    """Yield what has been pending for more than a day."""
    for instant in picture.active.pending():
        if not picture.is_old(time=instant.requested_time) or not _is_forgotten(picture, instant):
            continue
        days = (picture.now_ms - _time_ms(instant.requested_time, picture.config.timezone)) / DAY_MS
        code = "write-pending" if is_write(instant) else "service-pending"
        if instant.action in (ROLLBACK, RESTORE):
            code = "rollback-pending"
        beats = {info.name for info in picture.folders.get(HEARTBEAT_FOLDER, ())}
        idle = code == "write-pending" and instant.requested_time not in beats
        yield Finding(
            code,
            f"{instant.action} {instant.requested_time} is {instant.state.value.lower()} since"
            f" {days:.1f} days"
            + ("; its writer is dead, or idle, as a Flink job without input" if idle else ""),
            _paths(picture, instant),
        )


def _is_forgotten(picture: Picture, instant: Instant) -> bool:
    """Return whether the last file of an instant, and its heartbeat, are a day old, too."""
    name = picture.meta.layout.file_name(instant)
    beats = (instant.requested_time, f"{instant.requested_time}.completing")
    return all(
        picture.is_old(mtime_ms=info.mtime_ms)
        for listing in picture.folders.values()
        for info in listing
        if info.name == name or info.name in beats
    )


def _paths(picture: Picture, *instants: Instant) -> tuple[str, ...]:
    return tuple(map(picture.meta.path_of, instants))


def _time_ms(text: str, zone: str) -> int:
    """Return a time in ms since the epoch; 0 if it is none, as of the first instants."""
    try:
        return parse_instant_time(text, zone)
    except ValueError:
        return 0


# What was left.


def check_left(picture: Picture) -> Iterator[Finding]:
    """Yield markers, heartbeats, temporary files and a lock that stayed for a day."""
    for code, what, lefts in (
        ("marker-left", "the markers", picture.markers),
        ("heartbeat-left", "the heartbeat", picture.heartbeats),
    ):
        for left in lefts:
            if picture.is_old(mtime_ms=left.newest_ms, time=left.time):
                text = f"{what} of {left.time}, which isn't pending, stayed"
                text += f"; {left.needed}" if left.needed else ""
                # Markers tell what a write wrote whose instant may have been lost.
                fixable = not left.needed and (code != "marker-left" or picture.is_whole)
                yield Finding(code, text, left.paths, left.bytes, fixable=fixable)
    pending = {instant.requested_time for instant in picture.active.pending()}
    for folder, listing in picture.folders.items():
        for info in filter(is_temporary, listing):
            begin = _TIME.match(info.name)
            time = "" if begin is None else begin[0]
            if time not in pending and picture.is_old(mtime_ms=info.mtime_ms, time=time):
                what = "a writer died while it wrote this temporary file"
                paths = (f"{folder}/{info.name}",)
                yield Finding("temp-file-left", what, paths, info.size, fixable=True)
    for info in picture.folders.get(META_FOLDER, ()):
        if info.name == LOCK_FILE and picture.is_old(mtime_ms=info.mtime_ms):
            what = "a writer has held the table's lock for more than a day, or died with it"
            yield Finding("lock-left", what, (f"{META_FOLDER}/{info.name}",), info.size)


def is_temporary(info: FileInfo) -> bool:
    """Return whether a file of a metadata folder is one that its writer would have renamed."""
    return not info.is_dir and _TEMPORARY.fullmatch(info.name) is not None


def check_archive(picture: Picture) -> Iterator[Finding]:
    """Yield an archive that can't be read, and files of it that aren't there."""
    if picture.archive.missing:
        what = "the manifest of the archived timeline names files that aren't there"
        yield Finding("archive-file-missing", what, picture.archive.missing)
    if picture.archive.problem:
        what = f"the archived timeline can't be read: {picture.archive.problem:.300}"
        yield Finding("broken-archive", what, (picture.config.archive_folder,))


def check_metadata_table(picture: Picture) -> Iterator[Finding]:
    """Yield a metadata table that isn't there, or isn't in step with the table."""
    reason = picture.metadata_table
    names = (f"{META_FOLDER}/metadata",)
    if reason == "":
        partitions = ", ".join(picture.config.named_metadata_partitions)
        what = f"the properties name its partitions {partitions}, and there is no folder"
        yield Finding("metadata-table-missing", what, names)
    elif reason is not None:
        yield Finding("metadata-table-stale", f"it isn't in step: {reason:.300}", names)


def check_lost(picture: Picture) -> Iterator[Finding]:
    """Yield instants that later ones show to have completed, and that nothing has any more."""
    for time in picture.lost:
        what = f"commits follow instant {time}, which isn't on the timeline or in the archive"
        yield Finding("timeline-incomplete", what, (f"{picture.meta.layout.folder}/{time}",))


TABLE_CHECKS: Final = (
    check_lost,
    check_times,
    check_files_of_instants,
    check_pending,
    check_left,
    check_archive,
    check_metadata_table,
)
"""The checks of a picture."""
