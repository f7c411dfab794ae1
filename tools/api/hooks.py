"""A codec for the property-testing tool: all of Unicode, but for the characters beyond the first plane that show nothing.

The server refuses them in names and notes (`crates/domain/src/text.rs`). The patterns of the document name such characters
of the first plane alone, because a pattern cannot name others portably; a test of `crates/domain` covers them.
"""

import codecs

HIDDEN = [range(0x1BCA0, 0x1BCA4), range(0x1D173, 0x1D17B), range(0xE0000, 0xE1000)]


def encode(text, errors="strict"):
    for position, character in enumerate(text):
        if ord(character) > 0xFFFF and any(ord(character) in hidden for hidden in HIDDEN):
            raise UnicodeEncodeError("visible", text, position, position + 1, "shows nothing")
    return codecs.utf_8_encode(text, errors)


def search(name):
    return codecs.CodecInfo(encode, codecs.utf_8_decode, name="visible") if name == "visible" else None


codecs.register(search)
