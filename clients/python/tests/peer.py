"""A relay by hand: says the bytes that a test tells it to, to one client."""

import socket
import struct
import threading

from tierfold import _frame, _wire

from .vectors import SESSION_SALT as SALT

ACK = struct.pack("<2I", 0xF10D17C1, 2)
PATIENCE = 60.0


class Peer:
    """Listens on loopback; ``script(connection)`` runs in a thread once a client has connected."""

    def __init__(self, script):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE)
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self.error = None
        self._thread = threading.Thread(target=self._run, args=(script,))
        self._thread.start()

    def _run(self, script):
        try:
            connection, _ = self._listener.accept()
            with connection:
                connection.settimeout(PATIENCE)
                script(connection)
        except Exception as error:  # handed to the test
            self.error = error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._thread.join(PATIENCE)
        self._listener.close()
        if self.error is not None:
            raise self.error


def read_exactly(connection, count):
    """``count`` bytes; fewer at the end of the stream."""
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            break
        data += piece
    return bytes(data)


def drain(connection):
    """Reads what the client still sends until it closes, whichever way."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass


def admit(connection):
    """Takes the handshake and lets the rank in; returns (rank, world size)."""
    magic, version, rank, world = struct.unpack("<4I", read_exactly(connection, 16))
    assert (magic, version) == (0xF10D17C0, 2)
    connection.sendall(ACK)
    return rank, world


def read_frame(connection):
    """One frame of the rank, verified: its header and its bytes."""
    (length,) = struct.unpack("<I", read_exactly(connection, 4))
    frame = read_exactly(connection, length)
    return _frame.decode_frame(frame, SALT, 1024**3), frame


def make_frame(kind, weight, tensors, salt=SALT):
    """A frame of shapes with the bytes of their values."""
    layout = _frame.layout_frame([shape for shape, _ in tensors])
    parts = [_frame.encode_start(kind, weight, len(layout))]
    for header, (_, data) in zip(layout, tensors):
        parts += [_frame.encode_tensor_header(header), data]
    signed = b"".join(parts)
    return signed + _wire.tag64(salt, signed)


def prefixed(frame):
    return struct.pack("<I", len(frame)) + frame


def note(text, salt=SALT):
    """A refusal note."""
    data = text.encode()
    return struct.pack("<2I", 0xFFFFFFFF, len(data)) + _wire.tag64(salt, data) + data
