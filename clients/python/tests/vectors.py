"""The golden vectors and cases that all clients share."""

import json
import struct
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
FOLDER = REPOSITORY / "tests" / "vectors"
INDEX = json.loads((FOLDER / "index.json").read_text())["vectors"]
SALT = bytes(range(16))


def good(form):
    return [vector for vector in INDEX if vector["format"] == form and "error" not in vector]


def bad(form):
    return [vector for vector in INDEX if vector["format"] == form and "error" in vector]


def content(name):
    return (FOLDER / name).read_bytes()


def f64(hexes):
    return struct.unpack("<d", bytes.fromhex(hexes))[0]
