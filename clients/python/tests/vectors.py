"""The golden vectors and cases that all clients share."""

import json
import struct
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
FOLDER = REPOSITORY / "tests" / "vectors"
INDEX = json.loads((FOLDER / "index.json").read_text())["vectors"]
# That of the vectors, which no session would take, and one that a session takes.
SALT = bytes(range(16))
SESSION_SALT = bytes.fromhex("9d1c4be07a52f8360ee5b3476d91c82f")


def good(form):
    return [vector for vector in INDEX if vector["format"] == form and "error" not in vector]


def bad(form):
    return [vector for vector in INDEX if vector["format"] == form and "error" in vector]


def content(name):
    return (FOLDER / name).read_bytes()


def f64(hexes):
    return struct.unpack("<d", bytes.fromhex(hexes))[0]
