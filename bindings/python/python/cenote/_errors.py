"""The store's errors as exceptions: by kind, and as the built-in exception that a Python program expects."""

import errno
from typing import Any


class Error(Exception):
    """An error of the store: its kind, subject, cause and next step."""

    kind: str = "error"
    code: int = 0

    def __init__(self, subject: str = "", cause: str = "", next_step: str = "", words: str = "") -> None:
        super().__init__(subject, cause, next_step, words)
        self.subject = subject
        self.cause = cause
        self.next_step = next_step
        self.words = words or self.kind

    @property
    def retry_helps(self) -> bool:
        """True if the same call may succeed later without other changes."""
        return False

    def __str__(self) -> str:
        text = f"{self.subject}: {self.words}"
        if self.cause:
            text += f": {self.cause}"
        if self.next_step:
            text += f" ({self.next_step})"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions must survive pickling between processes (multiprocessing).
        return type(self), (self.subject, self.cause, self.next_step, self.words)


class _OsError(Error, OSError):
    """An error that is also an `OSError` with its `errno`."""

    _errno: int = errno.EIO

    def __init__(self, subject: str = "", cause: str = "", next_step: str = "", words: str = "") -> None:
        super().__init__(subject, cause, next_step, words)
        self.errno = self._errno
        self.strerror = words


class NotFound(Error, KeyError):
    """No such store, container, object, index or tier."""

    kind, code = "not_found", 1


class Exists(Error, FileExistsError):
    """It exists already."""

    kind, code = "exists", 2

    def __init__(self, subject: str = "", cause: str = "", next_step: str = "", words: str = "") -> None:
        super().__init__(subject, cause, next_step, words)
        self.errno = errno.EEXIST


class InvalidInput(Error, ValueError):
    """The request is invalid: a bad size, range, name or combination."""

    kind, code = "invalid_input", 3


class LimitExceeded(Error, ValueError):
    """A limit of the format or a quota would be exceeded."""

    kind, code = "limit_exceeded", 4


class Full(_OsError):
    """All tiers that may take the data are full."""

    kind, code, _errno = "full", 5, errno.ENOSPC

    @property
    def retry_helps(self) -> bool:
        return True


class Corrupt(Error):
    """Stored bytes do not match their checksum, or metadata contradict each other."""

    kind, code = "corrupt", 6


class VersionMismatch(Error):
    """Written by a version that this one cannot read, or an unknown format."""

    kind, code = "version_mismatch", 7


class PermissionDenied(Error, PermissionError):
    """This user lacks the permission."""

    kind, code = "permission_denied", 8

    def __init__(self, subject: str = "", cause: str = "", next_step: str = "", words: str = "") -> None:
        super().__init__(subject, cause, next_step, words)
        self.errno = errno.EACCES


class Conflict(Error):
    """Another transaction changed what this one had read."""

    kind, code = "conflict", 9

    @property
    def retry_helps(self) -> bool:
        return True


class IoError(_OsError):
    """The device or file system failed."""

    kind, code = "io", 10


class Busy(Error, BlockingIOError):
    """Another process uses the store exclusively, or it is shutting down."""

    kind, code = "busy", 11

    def __init__(self, subject: str = "", cause: str = "", next_step: str = "", words: str = "") -> None:
        super().__init__(subject, cause, next_step, words)
        self.errno = errno.EBUSY

    @property
    def retry_helps(self) -> bool:
        return True


class Disconnected(Error, ConnectionError):
    """The daemon went away, and what was in flight cannot be confirmed."""

    kind, code = "disconnected", 12

    @property
    def retry_helps(self) -> bool:
        return True


class Unsupported(Error, NotImplementedError):
    """This version does not support the request."""

    kind, code = "unsupported", 13


class InternalError(Error):
    """A bug in Cenote."""

    kind, code = "internal", 14


_CLASSES: dict[int, type[Error]] = {
    cls.code: cls
    for cls in (
        NotFound,
        Exists,
        InvalidInput,
        LimitExceeded,
        Full,
        Corrupt,
        VersionMismatch,
        PermissionDenied,
        Conflict,
        IoError,
        Busy,
        Disconnected,
        Unsupported,
        InternalError,
    )
}


def make(code: int, words: str, subject: str, cause: str, next_step: str) -> Error:
    """The exception for an error of the native module."""
    return _CLASSES.get(code, InternalError)(subject, cause, next_step, words)
