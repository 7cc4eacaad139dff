"""``strandline.service.bearer``: who may pass."""

import pytest

from strandline.service.bearer import BearerCheck, new_token, read_token_file
from timeline.errors import ConfigError


def test_only_the_token_passes():
    check = BearerCheck("abc")
    assert check.admits(b"Bearer abc")
    assert check.admits(b"bearer  abc ")
    for header in (None, b"", b"Bearer", b"Bearer ", b"Bearer abcd", b"Basic abc", b"Bearer \xff"):
        assert not check.admits(header)
    assert not check.is_open


def test_without_a_token_everybody_passes():
    assert BearerCheck(None).admits(None)
    assert BearerCheck(None).is_open


def test_the_token_is_not_shown():
    token = new_token()
    assert len(token) >= 43
    assert token not in repr(BearerCheck(token))
    assert new_token() != token


def test_a_token_file_holds_one_word(tmp_path):
    path = tmp_path / "token"
    path.write_text(" s3cret\n")
    assert read_token_file(str(path)) == "s3cret"


@pytest.mark.parametrize("content", [b"", b"  \n", b"two words", b"\xc3\xa9"])
def test_another_content_is_refused_without_showing_it(tmp_path, content):
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"token file {path}: ") as caught:
        read_token_file(str(path))
    assert "two words" not in str(caught.value)


def test_a_missing_token_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        read_token_file(str(tmp_path / "none"))
