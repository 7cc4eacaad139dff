"""No option of real Hudi counts as misspelt, whatever the lists lack."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from strandline.write.options.client_options import parse_options
from tests.oracle.hudi import HUDI, Hudi
from timeline.errors import ConfigError


def names(jar: Path) -> set[str]:
    """Return the texts in a jar's classes that look like options, without prefixes of others."""
    found = set()
    with zipfile.ZipFile(jar) as archive:
        for member in archive.namelist():
            if member.startswith("org/apache/hudi/") and member.endswith(".class"):
                for at in re.finditer(rb"\x01(..)(hoodie\.[\w.\-]+)", archive.read(member), re.S):
                    text = at[2][: int.from_bytes(at[1], "big")].decode()
                    found.add(text)
    return {
        name
        for name in found
        if not name.endswith(".") and not any(other.startswith(name + ".") for other in found)
    }


@pytest.mark.oracle
def test_no_option_of_hudi_counts_as_misspelt(hudi: Hudi) -> None:
    loader = hudi.jvm.java.lang.Thread.currentThread().getContextClassLoader()
    loaded = loader.loadClass("org.apache.hudi.DataSourceWriteOptions")
    jar = Path(loaded.getProtectionDomain().getCodeSource().getLocation().getPath())
    assert HUDI in jar.name
    options = names(jar)
    assert len(options) > 600
    misspelt = []
    for name in options:
        try:
            parse_options({name: "x"})
        except ConfigError as error:
            if "did you mean" in str(error):
                misspelt.append(str(error))
    assert misspelt == []
