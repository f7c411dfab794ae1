"""A codec for the property-based tests: all of Unicode except invisible characters beyond the Basic Multilingual Plane.

The server refuses invisible characters in names and notes (`crates/domain/src/text.rs`). Patterns in the OpenAPI document
exclude them only inside that plane, because patterns for others are not portable. A test of `crates/domain` covers them.
"""

import codecs

HIDDEN = [range(0x1BCA0, 0x1BCA4), range(0x1D173, 0x1D17B), range(0xE0000, 0xE1000)]


def encode(text, errors="strict"):
    for position, character in enumerate(text):
        if ord(character) > 0xFFFF and any(ord(character) in hidden for hidden in HIDDEN):
            raise UnicodeEncodeError("visible", text, position, position + 1, "invisible character")
    return codecs.utf_8_encode(text, errors)


def search(name):
    return codecs.CodecInfo(encode, codecs.utf_8_decode, name="visible") if name == "visible" else None


codecs.register(search)
