"""Whether a salt could be guessed: the same rules as in wire/salt.ts, which has their reasons."""

from __future__ import annotations

import re
from collections import Counter
from typing import Optional

# Steps between neighbours that may be equal before a salt counts as a sequence.
_EQUAL_STEPS = 8
# The fewest different bytes of a salt.
_LEAST_DIFFERENT = 7
# The longest period that is looked for.
_LONGEST_PERIOD = 8
# Lower-case or upper-case letters that make a text of printable characters.
_LETTERS_OF_TEXT = 14


def salt_weakness(salt: bytes) -> Optional[str]:
    """Why a salt was not drawn at random; None where nothing speaks against it."""
    steps = Counter((b - a) & 0xFF for a, b in zip(salt, salt[1:]))
    if max(steps.values()) >= _EQUAL_STEPS:
        return "its bytes count or repeat"
    for period in range(2, _LONGEST_PERIOD + 1):
        if all(byte == salt[i % period] for i, byte in enumerate(salt)):
            return f"it repeats itself after {period} bytes"
    different = len(set(salt))
    if different < _LEAST_DIFFERENT:
        return f"it has no more than {different} different bytes"
    text = salt.decode("latin1")
    plain = re.fullmatch(r"[a-z0-9 _-]+|[A-Z0-9 _-]+", text) is not None
    letters = max(len(re.findall(case, text)) for case in ("[a-z]", "[A-Z]"))
    if plain or (re.fullmatch(r"[ -~]+", text) and letters >= _LETTERS_OF_TEXT):
        return "its bytes are text"
    return None
