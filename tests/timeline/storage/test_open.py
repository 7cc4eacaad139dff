from typing import Any

import pytest

from timeline.errors import ConfigError
from timeline.storage.fsspec_storage import FsspecStorage
from timeline.storage.local import LocalStorage
from timeline.storage.open import open_storage


def test_local_paths(subtests: pytest.Subtests) -> None:
    for base_path in ["/t", "t", "file:/t", "file:///t"]:
        with subtests.test(base_path=base_path):
            assert isinstance(open_storage(base_path), LocalStorage)


def test_urls_go_to_fsspec() -> None:
    storage = open_storage("memory://t/")
    assert isinstance(storage, FsspecStorage)
    assert storage.base_path == "memory://t"


@pytest.mark.parametrize("base_path", ["", "nosuchscheme://bucket/t"])
def test_a_path_that_cannot_be_opened_is_named(base_path: str) -> None:
    with pytest.raises(ConfigError, match=f"base path '{base_path}'"):
        open_storage(base_path)


@pytest.mark.parametrize("options", ["key=secret", ["secret"], 3])
def test_options_that_are_no_mapping_are_refused_and_not_shown(options: Any) -> None:
    with pytest.raises(ConfigError, match=r"storage_options is of type .*; allowed") as caught:
        open_storage("/lake/t", options)
    assert "secret" not in str(caught.value)
