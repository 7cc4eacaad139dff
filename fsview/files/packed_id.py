"""A file id as a few bytes, with which a packed group begins.

Layout, big-endian: kind u8, then the 16 bytes of a UUID, with a u16 number after it for
``<uuid>-<n>``; or u16 length and text for any other id.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from fsview.model.file_name import PLAIN_ID

TEXT: Final = 0
"""The kind of ids that aren't a UUID, with or without a number."""
_UUID: Final = 1
_UUID_NUMBER: Final = 2
_MAX_U16: Final = 0xFFFF
_U16: Final = Struct(">H")
_UUID_ID: Final = Struct(">B16s")
_UUID_NUMBER_ID: Final = Struct(">B16sH")


def pack_id(file_id: str) -> bytes:
    """Return the packed form of a file id."""
    plain = PLAIN_ID.fullmatch(file_id)
    packed = None if plain is None else pack_uuid(plain[1], plain[2])
    if packed is not None:
        return packed
    text = file_id.encode("utf-8", "surrogateescape")
    return bytes((TEXT,)) + _U16.pack(len(text)) + text


def pack_uuid(uuid: str, number: str | None) -> bytes | None:
    """Return the packed form of the parts of a plain id; ``None`` if the number is too large."""
    packed = bytes.fromhex(uuid.replace("-", ""))
    if number is None:
        return _UUID_ID.pack(_UUID, packed)
    if int(number) > _MAX_U16:
        return None
    return _UUID_NUMBER_ID.pack(_UUID_NUMBER, packed, int(number))


def unpack_id(data: bytes, start: int) -> tuple[str, int]:
    """Return a file id and the offset behind it."""
    kind = data[start]
    if kind == TEXT:
        end = id_end(data, start)
        return data[start + 3 : end].decode("utf-8", "surrogateescape"), end
    text = data[start + 1 : start + 17].hex("-", 2)  # a hyphen after every fourth digit
    uuid = f"{text[:4]}{text[5:29]}{text[30:34]}{text[35:]}"
    if kind == _UUID:
        return uuid, start + 17
    return f"{uuid}-{data[start + 17] << 8 | data[start + 18]}", start + 19


def id_end(data: bytes, start: int = 0) -> int:
    """Return the offset behind a file id."""
    kind = data[start]
    if kind == TEXT:
        length: int = _U16.unpack_from(data, start + 1)[0]
        return start + 3 + length
    return start + (17 if kind == _UUID else 19)
