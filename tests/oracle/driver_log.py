"""What Hudi's classes in a driver warn of, in a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.oracle.hudi import Hudi

PACKAGE = "org.apache.hudi"

FALLBACKS = ("Trying secondary", "alling back", "HoodieRemoteException", "Got error running")
"""What is in the lines by which Hudi says that it does without the service."""


@contextmanager
def driver_log(hudi: Hudi, path: Path) -> Iterator[Path]:
    """Have Hudi's warnings and errors go to ``path`` alone, not to stderr."""
    log4j = hudi.jvm.org.apache.logging.log4j
    context = log4j.LogManager.getContext(False)
    configuration = context.getConfiguration()
    core = log4j.core
    layout = core.layout.PatternLayout.newBuilder()
    layout = layout.withPattern("%d{HH:mm:ss.SSS} %p %t %c{1}: %m%n%ex").build()
    appender = (
        core.appender.FileAppender.newBuilder()
        .setName(str(path))
        .setLayout(layout)
        .withFileName(str(path))
        .build()
    )
    appender.start()
    logger = core.config.LoggerConfig(PACKAGE, log4j.Level.WARN, False)
    logger.addAppender(appender, log4j.Level.WARN, None)
    configuration.addLogger(PACKAGE, logger)
    context.updateLoggers()
    try:
        yield path
    finally:
        configuration.removeLogger(PACKAGE)
        context.updateLoggers()
        appender.stop()


def fallbacks(log: Path) -> list[str]:
    """Return the lines of a driver's log that tell of a fallback."""
    return [line for line in log.read_text().splitlines() if any(one in line for one in FALLBACKS)]
