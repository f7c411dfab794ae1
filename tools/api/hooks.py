"""Defines the text codec of the property-based tests: Unicode without the invisible characters above U+FFFF.

The server refuses invisible characters in names and notes (`crates/domain/src/text.rs`). Patterns in the OpenAPI
document exclude only those up to U+FFFF, because patterns for higher characters are not portable. The codec prevents
generated requests from containing the higher ones, which a test of `crates/domain` covers instead.
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
