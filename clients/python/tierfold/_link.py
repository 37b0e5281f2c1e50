"""A TCP connection with deadlines: connect with back-off, read exactly, write fully."""

from __future__ import annotations

import socket
import time
from typing import Union

from ._wire import Bytes
from .errors import TransportError

# First pause between two attempts to connect; it doubles up to the last one. In seconds.
FIRST_PAUSE = 0.05
LAST_PAUSE = 2.0


class Deadline:
    """A point in time after which waiting for something is over."""

    def __init__(self, seconds: float, what: str) -> None:
        self.seconds = seconds
        self.what = what
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds left; 0 or less when it has passed."""
        return self._end - time.monotonic()


def format_address(host: str, port: int) -> str:
    """``HOST:PORT``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def connect(host: str, port: int, what: str, deadline: Deadline) -> Link:
    """Connects, trying every address of the name again and again with growing pauses."""
    pause = FIRST_PAUSE
    attempts = 0
    while True:
        attempts += 1
        try:
            sock = socket.create_connection((host, port), timeout=max(deadline.left(), 0.001))
            return Link(sock, format_address(host, port))
        except OSError as error:
            failure = error
        if deadline.left() <= pause:
            raise TransportError(
                "unreachable",
                f"connecting to {what} at {format_address(host, port)}: {attempts} attempts in "
                f"{deadline.seconds:g} s failed, the last one with: {failure}",
            ) from failure
        time.sleep(pause)
        pause = min(2 * pause, LAST_PAUSE)


class Link:
    """One connection. Every wait has a deadline."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        # Small frames must not wait for an acknowledgement of the one before.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self.peer = peer
        self.bytes_in = 0
        self.bytes_out = 0

    def write(self, data: Bytes, what: str, deadline: Deadline) -> None:
        """Writes all of ``data``; raises TransportError when the connection breaks or takes too long."""
        view = memoryview(data)
        done = 0
        while done < len(view):
            try:
                self._arm(deadline)
                count = self._sock.send(view[done:])
            except OSError as error:
                doing = f"writing {what} to {self.peer}, {done} of {len(view)} bytes written"
                raise self._broken(doing, error, deadline) from error
            done += count
            self.bytes_out += count

    def read_some(self, into: Union[bytearray, memoryview], what: str, deadline: Deadline) -> int:
        """Reads what is there into ``into``; 0 at the end of the stream."""
        try:
            self._arm(deadline)
            count = self._sock.recv_into(into)
        except OSError as error:
            raise self._broken(f"reading {what} from {self.peer}", error, deadline) from error
        self.bytes_in += count
        return count

    def read_fully(self, into: memoryview, what: str, deadline: Deadline) -> bool:
        """Fills ``into``; False when the stream ended before the first byte."""
        have = 0
        while have < len(into):
            count = self.read_some(into[have:], what, deadline)
            if count == 0:
                if have == 0:
                    return False
                raise TransportError(
                    "closed",
                    f"reading {what} from {self.peer}: the stream ended after {have} of {len(into)} bytes",
                )
            have += count
        return True

    def has_input(self) -> bool:
        """Whether something is there to read, or the stream has ended. Does not wait."""
        try:
            self._sock.settimeout(0)
            self._sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            pass
        return True

    def close(self) -> None:
        """Closes the connection; may be called again."""
        self._sock.close()

    def _arm(self, deadline: Deadline) -> None:
        left = deadline.left()
        if left <= 0:
            raise socket.timeout("the time is over")
        self._sock.settimeout(left)

    def _broken(self, doing: str, error: OSError, deadline: Deadline) -> TransportError:
        if isinstance(error, socket.timeout):
            return TransportError(
                "deadline",
                f"{deadline.what}: {self.peer} took longer than {deadline.seconds:g} s ({doing})",
            )
        return TransportError("closed", f"{doing}: the connection broke ({error})")
