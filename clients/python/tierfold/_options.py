"""What a rank is told, checked."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Optional, Union

from ._limits import SALT_BYTES
from ._salt import salt_weakness

# More than a salt and its line end: what a wrong file may cost in memory.
_MAX_SALT_FILE_BYTES = 4096
# The longest timeout, in seconds.
_LONGEST = (2**31 - 1) / 1000


def timeout(name: str, seconds: float) -> float:
    """A time in seconds that can be waited for."""
    if not (math.isfinite(seconds) and 0.001 <= seconds <= _LONGEST):
        raise ValueError(
            f"connecting a rank: {name} {seconds}, expected 0.001 to {_LONGEST} seconds"
        )
    return float(seconds)


def parse_address(text: str) -> tuple[str, int]:
    """``HOST:PORT``, an IPv6 address in brackets."""
    match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:\s\[\]]+)):([0-9]{1,5})", text)
    port = int(match.group(3)) if match else 0
    if match is None or not 1 <= port <= 65_535:
        raise ValueError(
            f"connecting a rank: relay address {text!r}, expected HOST:PORT, an IPv6 address in brackets"
        )
    return match.group(1) or match.group(2), port


def find_salt(
    salt: Union[bytes, str, None], salt_file: Union[str, os.PathLike[str], None]
) -> bytes:
    """The session salt: given, from the given file, from TIERFOLD_SALT or the file of TIERFOLD_SALT_FILE.

    Raises ValueError when there is none or it is not one; what it holds is not repeated.
    """
    if salt is not None and salt_file is not None:
        raise ValueError("connecting a rank: both a salt and a salt file are given; give one")
    if isinstance(salt, (bytes, bytearray, memoryview)):
        if len(salt) != SALT_BYTES:
            raise ValueError(
                f"connecting a rank: the salt has {len(salt)} bytes, expected {SALT_BYTES}"
            )
        return _drawn(bytes(salt), "the salt")
    if salt is not None:
        return _parse_salt(salt, "the salt")
    if salt_file is not None:
        return _parse_salt(_read_salt_file(salt_file), f"salt file {os.fspath(salt_file)}")
    variable: Optional[str] = os.environ.get("TIERFOLD_SALT")
    named: Optional[str] = os.environ.get("TIERFOLD_SALT_FILE")
    if variable is not None and named is not None:
        raise ValueError(
            "TIERFOLD_SALT and TIERFOLD_SALT_FILE are both set; unset one, they may disagree"
        )
    if variable is not None:
        return _parse_salt(variable, "TIERFOLD_SALT")
    if named is not None:
        return _parse_salt(_read_salt_file(named), f"salt file {named} (TIERFOLD_SALT_FILE)")
    raise ValueError(
        "the session salt is missing: set TIERFOLD_SALT to 32 hex digits, or name a file that holds them; "
        "every rank, relay and controller of a session needs the same one"
    )


def _parse_salt(text: str, where: str) -> bytes:
    digits = text.strip()
    if re.fullmatch(r"[0-9a-fA-F]{32}", digits) is None:
        raise ValueError(
            f"{where}: expected the session salt as {2 * SALT_BYTES} hex digits, got {len(digits)} characters"
        )
    return _drawn(bytes.fromhex(digits), where)


def _drawn(salt: bytes, where: str) -> bytes:
    weakness = salt_weakness(salt)
    if weakness is None:
        return salt
    raise ValueError(
        f"{where}: the session salt could be guessed: {weakness}; make one with openssl rand -hex 16"
    )


def _read_salt_file(path: Union[str, os.PathLike[str]]) -> str:
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_SALT_FILE_BYTES + 1)
    except OSError as error:
        raise ValueError(
            f"salt file {os.fspath(path)}: cannot be read: {error.strerror}"
        ) from error
    if len(content) > _MAX_SALT_FILE_BYTES:
        raise ValueError(f"salt file {os.fspath(path)}: expected 32 hex digits, got a larger file")
    return content.decode("ascii", errors="replace")
