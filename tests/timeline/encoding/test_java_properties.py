import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.encoding.java_properties import format_properties, parse_properties

TEXTS = [
    ("a=b", {"a": "b"}),
    ("a = b ", {"a": "b "}),
    ("  a:b", {"a": "b"}),
    ("a b c", {"a": "b c"}),
    ("a\t=\tb", {"a": "b"}),
    ("a", {"a": ""}),
    ("a=", {"a": ""}),
    ("=b", {"": "b"}),
    ("# a=b\n! c=d\n\n   # e=f", {}),
    ("a=b#c", {"a": "b#c"}),
    ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
    ("a=b\\\n   c", {"a": "bc"}),
    ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
    ("a=b\\\r\n  c\r\nd=e\r", {"a": "bc", "d": "e"}),
    ("a=\\t\\n\\r\\f\\x\\\\", {"a": "\t\n\r\fx\\"}),
    ("a=\\u00e9\\ud83d\\ude00", {"a": "é😀"}),
    ("a=1\na=2", {"a": "2"}),
    ("a=b=c", {"a": "b=c"}),
    ("a==b", {"a": "=b"}),
    ("a=b\\", {"a": "b"}),
    ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
]


def test_properties_are_read_as_java_reads_them(subtests: pytest.Subtests) -> None:
    for text, found in TEXTS:
        with subtests.test(text=text):
            assert parse_properties(text.encode("latin-1")) == found


def test_bytes_are_latin_1() -> None:
    assert parse_properties(b"a=\xe9") == {"a": "é"}


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uzzzz", "a=\\u"])
def test_a_malformed_escape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="malformed"):
        parse_properties(text.encode())


def test_format_is_sorted_and_escaped() -> None:
    text = format_properties({"b": " x:y=z#", "a b": "é😀\n\\"}, "comment")
    assert text == b"#comment\na\\ b=\\u00E9\\uD83D\\uDE00\\n\\\\\nb=\\ x\\:y\\=z\\#\n"


@given(st.dictionaries(st.text(), st.text(), max_size=5))
def test_what_is_written_reads_back(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties, "c")) == properties


def test_of_a_long_line_the_place_of_a_bad_escape_is_shown() -> None:
    line = "k=" + "x" * 100_000 + "<\\uZZ>" + "y" * 100_000
    with pytest.raises(ValueError, match=r"<\\\\uZZ>") as refused:
        parse_properties(line)
    assert len(str(refused.value)) < 200
