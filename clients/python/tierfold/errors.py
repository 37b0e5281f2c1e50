"""Errors: what was being done, with whom, what was expected and what came."""

from __future__ import annotations


class TierfoldError(Exception):
    """Any error of this package that is not a wrong argument (those are ValueError and TypeError)."""


class TransportError(TierfoldError, ConnectionError):
    """A connection that could not be made, was refused, broke or took too long.

    ``code`` says which: "unreachable", "refused", "closed", "deadline" or "ended" (closed here).
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class WireError(TierfoldError):
    """Bytes of the relay that are not what the protocol promises.

    ``code`` is one word for the cause, the same as in the TypeScript client: "magic", "version", "kind",
    "truncated", "trailing", "tensor-count", "weight", "ceiling", "mac", "dtype", "shape", "schema" or
    "membership".
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class LaunchError(TierfoldError, ValueError):
    """What the environment says of this process's place cannot be used."""
