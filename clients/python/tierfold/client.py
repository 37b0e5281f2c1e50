"""The rank's side of a round: one frame up, one frame down."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Callable, Optional, Union

import numpy as np

from . import _frame, _link, _options, _wire
from ._limits import TAG_BYTES, frame_ceiling_for
from ._seal import DOWN, NONCE_BYTES, SEALED, UP, Seals, seal_key
from ._send import FrameWriter
from ._tensors import F32, Tensor, Values, normalize
from .errors import TierfoldError, TransportError, WireError
from .launch import launch_place

# How long the reason for a broken connection may take to arrive, in seconds.
_REASON_SECONDS = 2.0
# Most bytes asked of the socket at once: they are hashed while they are in the cache.
_READ_BYTES = 1024 * 1024


@dataclass(frozen=True)
class RoundResult:
    """What a round came to."""

    # "model" (an average) or "control" (a sum).
    kind: str
    # The total mass that was accepted; 0 for a Model round means that nothing was changed.
    mass: float
    bytes_up: int
    bytes_down: int
    seconds: float


def connect(
    relay: Optional[str] = None,
    rank: Optional[int] = None,
    world_size: Optional[int] = None,
    *,
    salt: Union[bytes, str, None] = None,
    salt_file: Union[str, os.PathLike[str], None] = None,
    seal: bool = False,
    join_timeout: float = 60.0,
    round_timeout: float = 900.0,
) -> RankClient:
    """Connects to the relay of this host and takes this rank's place, trying until the relay is there.

    relay          ``HOST:PORT``; TIERFOLD_RELAY when left out
    rank           this rank's number, from 0; as launch_place() finds it when left out
    world_size     how many ranks the session has; likewise
    salt           the session salt, 16 bytes or 32 hex digits; when neither it nor ``salt_file`` is given,
                   TIERFOLD_SALT or the file that TIERFOLD_SALT_FILE names
    seal           binds the connection to nonces of both ends, so that a recorded one cannot be played again,
                   and proves to the relay that this rank has the salt before it is let in
    join_timeout   how long to try to reach the relay and be let in, in seconds
    round_timeout  how long a round may take, in seconds

    Raises ValueError when an argument or the environment is not usable, TransportError when the relay
    cannot be reached in time or refuses this rank, WireError when what answers is not a relay.
    """
    key = _options.find_salt(salt, salt_file)
    place = launch_place(rank, world_size)
    address = relay or place.relay
    if address is None:
        raise ValueError(
            "connecting a rank: nobody names the relay of this host: give its address, or set "
            "TIERFOLD_RELAY"
        )
    host, port = _options.parse_address(address)
    seconds = _options.timeout("join_timeout", join_timeout)
    round_seconds = _options.timeout("round_timeout", round_timeout)
    deadline = _link.Deadline(seconds, f"rank {place.rank} waits to be let in")
    link = _link.connect(host, port, f"the relay of rank {place.rank}", deadline)
    client = RankClient(link, place.rank, place.world_size, key, round_seconds)
    try:
        client._handshake(seal, deadline)
    except BaseException:
        link.close()
        raise
    return client


class RankClient:
    """A rank's connection to the relay of its host; made by connect(). One round at a time."""

    def __init__(
        self, link: _link.Link, rank: int, world_size: int, salt: bytes, round_seconds: float
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self._link = link
        self._salt = salt
        self._up: Optional[Seals] = None
        self._down: Optional[Seals] = None
        self._round_seconds = round_seconds
        self._round = 0
        self._busy = threading.Lock()
        self._failed: Optional[TierfoldError] = None
        self._buffer = bytearray()

    def all_reduce(self, tensors: object, *, mass: float = 1.0, kind: str = "model") -> RoundResult:
        """Averages (kind "model") or sums ("control") tensors over all ranks, in place.

        A Model round multiplies each rank's tensors by its ``mass`` on the way up and divides the sum once
        by the mass that was accepted; when that is 0, nothing is changed. A Control round sends them as
        they are. Every rank gives the same tensors in the same order, and every rank that finishes the
        round gets the same f32 values.

        tensors  an array, a list or a dict of numpy arrays or torch tensors of floats. Values travel as
                 f32: float64 loses precision, float16 and bfloat16 are rounded back. Unchanged when this
                 raises.
        mass     what this rank's work weighs; see gamma_mass()

        Raises TypeError or ValueError when a tensor or the mass is not usable (nothing was sent);
        TransportError when the relay refuses, closes, breaks or takes too long, WireError when its answer
        is not authentic or does not fit (the client is closed then).
        """
        if not (math.isfinite(mass) and mass >= 0):
            raise ValueError(f"sending round {self._round}: mass {mass} is not finite and >= 0")
        if kind not in _frame.KINDS:
            raise ValueError(
                f"sending round {self._round}: kind {kind!r}, expected model or control"
            )
        own = normalize(tensors)
        factor = mass if kind == "model" else 1.0
        return self._run(
            own, kind, mass, factor, lambda sum_mass: kind == "control" or sum_mass > 0
        )

    def broadcast(self, tensors: object, root: int) -> RoundResult:
        """Copies tensors from one rank to all others: a Control round in which the others send zeros.

        On ``root`` the tensors are what is sent; elsewhere they are overwritten. Raises WireError
        "membership" when the root has left the session: the tensors are unchanged, and the client can go
        on. Else as all_reduce().
        """
        if not 0 <= root < self.world_size:
            raise ValueError(f"broadcasting from rank {root}: expected 0 to {self.world_size - 1}")
        own = normalize(tensors)
        # The mass says that the root took part: without it, the others would take its absence for zeros.
        weight = 1.0 if self.rank == root else 0.0
        result = self._run(own, "control", weight, weight, lambda mass: mass > 0)
        if result.mass == 0:
            raise WireError(
                "membership",
                f"broadcasting from rank {root} to rank {self.rank}: nothing of it came, so it has left "
                "the session; the tensors are unchanged",
            )
        return result

    def gather_counts(self, count: float) -> Values:
        """Tells every rank every rank's count: a Control round in which each fills its own slot.

        ``count`` is exact up to 2 ** 24. Returns one count per rank; 0 for ranks that are gone.
        """
        counts = np.zeros(self.world_size, dtype=F32)
        counts[self.rank] = count
        self._run(normalize({"counts": counts}), "control", 0.0, 1.0, lambda mass: True)
        return counts

    def restore_consensus(self, tensors: object) -> int:
        """Asks for the consensus from which a controller with ``--resume`` goes on.

        All ranks call this together, before their first Model round. Returns the step, from 1, and writes
        the consensus into the tensors; 0, and nothing is written, when there is none.
        """
        return int(self._run(normalize(tensors), "control", 0.0, 0.0, lambda mass: mass > 0).mass)

    def close(self) -> None:
        """Leaves the session cleanly: the relay goes on without this rank."""
        if self._failed is None:
            self._failed = TransportError("ended", f"rank {self.rank} was closed")
        self._link.close()

    def __enter__(self) -> RankClient:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def _handshake(self, seal: bool, deadline: _link.Deadline) -> None:
        version = _wire.PROTOCOL_F32 + (SEALED if seal else 0)
        handshake = _wire.encode_handshake(self.rank, self.world_size, version)
        what = f"the handshake of rank {self.rank}"
        if not seal:
            self._link.write(handshake, what, deadline)
            _wire.decode_ack(self._answer(_wire.ACK_BYTES, deadline), version)
            return
        nonce = os.urandom(NONCE_BYTES)
        self._link.write(handshake + nonce, what, deadline)
        _wire.decode_challenge(self._answer(_wire.ACK_BYTES, deadline), version)
        key = seal_key(self._salt, nonce, bytes(self._answer(NONCE_BYTES, deadline)))
        self._up, self._down = Seals(key, UP), Seals(key, DOWN)
        self._link.write(self._up.next(handshake), f"the proof of rank {self.rank}", deadline)
        answer = self._answer(_wire.ACK_BYTES, deadline)
        _wire.decode_ack(answer, version)
        if not _wire.tags_equal(self._down.next(answer), self._answer(TAG_BYTES, deadline)):
            raise WireError(
                "mac",
                f"joining the relay at {self._link.peer}: its answer is not of this connection",
            )

    def _answer(self, size: int, deadline: _link.Deadline) -> bytearray:
        """The next bytes of the relay's answer, unless they begin a refusal."""
        answer = bytearray(size)
        what = f"the answer to the handshake of rank {self.rank}"
        if not self._link.read_fully(memoryview(answer), what, deadline):
            raise TransportError(
                "closed",
                f"the relay at {self._link.peer} closed the connection at the handshake of rank "
                f"{self.rank} of {self.world_size}; its log says why",
            )
        if size == _wire.ACK_BYTES and _wire.is_refusal(answer):
            raise self._refusal(answer, deadline)
        return answer

    def _run(
        self,
        own: Sequence[Tensor],
        kind: str,
        weight: float,
        factor: float,
        stored: Callable[[float], bool],
    ) -> RoundResult:
        """One round; its result is written into the tensors when ``stored`` says so of its mass."""
        layout = _frame.layout_frame([t.shape for t in own], [t.name for t in own])
        if not self._busy.acquire(blocking=False):
            raise ValueError(
                f"rank {self.rank} starts a round while round {self._round} is under way; wait for it"
            )
        try:
            if self._failed is not None:
                raise self._failed
            try:
                return self._exchange(own, layout, kind, weight, factor, stored)
            except BaseException as error:
                # Also an interrupt: a connection in the middle of a frame is of no use any more.
                self._failed = (
                    error
                    if isinstance(error, TierfoldError)
                    else TransportError("ended", f"rank {self.rank} was interrupted in mid-round")
                )
                self._link.close()
                raise
        finally:
            self._busy.release()

    def _exchange(
        self,
        own: Sequence[Tensor],
        layout: Sequence[_frame.TensorHeader],
        kind: str,
        weight: float,
        factor: float,
        stored: Callable[[float], bool],
    ) -> RoundResult:
        started = time.perf_counter()
        link = self._link
        bytes_in, bytes_out = link.bytes_in, link.bytes_out
        round_number = self._round
        self._round += 1
        what = f"round {round_number} of rank {self.rank}"
        deadline = _link.Deadline(self._round_seconds, what)
        writer = FrameWriter(link, self._salt, self._up, what, deadline)
        try:
            spoken = writer.send(own, layout, kind, weight, factor)
        except TransportError as error:
            if error.code == "deadline":
                raise
            raise self._reason_for(error, round_number) from error
        prefix = self._read_prefix(round_number, deadline)
        if spoken:
            raise WireError(
                "message",
                f"the relay at {link.peer} answered round {round_number} before rank {self.rank} had sent it",
            )
        header = self._receive(prefix, own, layout, kind, round_number, deadline)
        if stored(header.weight):
            for tensor, place in zip(own, header.tensors):
                count = place.nbytes // 4
                tensor.store(np.frombuffer(self._buffer, F32, count, place.at))
        return RoundResult(
            kind=kind,
            mass=header.weight,
            bytes_up=link.bytes_out - bytes_out,
            bytes_down=link.bytes_in - bytes_in,
            seconds=time.perf_counter() - started,
        )

    def _read_prefix(self, round_number: int, deadline: _link.Deadline) -> bytearray:
        prefix = bytearray(_wire.LENGTH_BYTES)
        what = f"the result of round {round_number}"
        if not self._link.read_fully(memoryview(prefix), what, deadline):
            raise TransportError(
                "closed",
                f"the relay at {self._link.peer} closed the connection while rank {self.rank} waited for "
                f"{what}; its log says why",
            )
        if _wire.is_refusal(prefix):
            raise self._refusal(prefix, deadline)
        return prefix

    def _receive(
        self,
        prefix: bytearray,
        own: Sequence[Tensor],
        layout: Sequence[_frame.TensorHeader],
        kind: str,
        round_number: int,
        deadline: _link.Deadline,
    ) -> _frame.FrameHeader:
        # Its own frame tells how large an answer can be.
        ceiling = frame_ceiling_for(_frame.frame_length(layout))
        length = _wire.decode_length(prefix, ceiling)
        what = f"the result of round {round_number}"
        if len(self._buffer) < length:
            self._buffer = bytearray(length)
        frame = memoryview(self._buffer)[:length]
        signed_end = max(length - TAG_BYTES, 0)
        tag = _wire.Tag64(self._salt)
        received = 0
        while received < length:
            count = self._link.read_some(frame[received : received + _READ_BYTES], what, deadline)
            if count == 0:
                raise TransportError(
                    "closed",
                    f"reading {what} from {self._link.peer}: the stream ended after {received} of "
                    f"{length} bytes",
                )
            if received < signed_end:
                tag.update(frame[received : min(received + count, signed_end)])
            received += count
        due = tag.digest() if self._down is None else self._down.next(tag.digest())
        authentic = _wire.tags_equal(due, frame[signed_end:])
        header = _frame.expect_whole(_frame.parse_headers(frame, ceiling), length, authentic)
        whence = f"reading {what} of rank {self.rank} from {self._link.peer}"
        _frame.check_answer(header, kind, layout, [tensor.name for tensor in own], whence)
        return header

    def _reason_for(self, error: TransportError, round_number: int) -> TierfoldError:
        """What a failed write was really about, when the relay said so before it closed."""
        deadline = _link.Deadline(_REASON_SECONDS, "the reason for a broken connection")
        try:
            self._read_prefix(round_number, deadline)
        except TransportError as reason:
            return reason if reason.code == "refused" else error
        return error

    def _refusal(self, start: bytearray, deadline: _link.Deadline) -> TransportError:
        reason = self._read_reason(start, deadline)
        return TransportError(
            "refused",
            f"the relay at {self._link.peer} refused rank {self.rank} of {self.world_size} {reason}",
        )

    def _read_reason(self, start: bytearray, deadline: _link.Deadline) -> str:
        what = "the reason for a refusal"
        header = bytearray(_wire.REFUSAL_HEADER_BYTES)
        header[: len(start)] = start
        if not self._link.read_fully(memoryview(header)[len(start) :], what, deadline):
            return "without a reason; its log says why"
        length = _wire.refusal_text_length(header)
        if length is None:
            return "with an unreadable reason; its log says why"
        text = bytearray(length)
        if length > 0:
            self._link.read_fully(memoryview(text), what, deadline)
        reason = _wire.decode_refusal(bytes(header + text), self._salt)
        if reason is None:
            return "with a reason that is not signed with our salt: the salts of the two processes differ"
        return f"because: {reason}"
