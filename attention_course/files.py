"""Files of people: written in one step, so that none is lost, and printed so that none drives a terminal."""

import contextlib
import errno
import glob
import os
import re
import secrets
import stat
from pathlib import Path

DAY = 86400  # seconds
MAX_BYTES = 2**24  # bytes of a file that is read whole
WRITABLE = 0o222  # the permissions that a write-protected file lacks


def read_text(path: Path) -> str:
    """Read a text that people keep.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no text, or a pipe, a folder or the like, or larger than 16 MB.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
        raise ValueError(f"it is no file of at most {MAX_BYTES // 2**20} MB")
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors put a byte order mark in front
    except UnicodeDecodeError:
        raise ValueError("it is no text in UTF-8") from None


def told(error: Exception) -> str:
    """Return what an error of a file says, printable, and in words for people where Python's are not."""
    if isinstance(error, OSError) and error.strerror:
        return printable(f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}.")
    if isinstance(error, UnicodeEncodeError):
        return f"a text has {error.object[error.start]!a} in it, which is half a character"
    return printable(str(error))


def write_at_once(path: str | Path, content: bytes) -> None:
    """Write a file in one step: until the new content is on the disk, the old one stays.

    Symbolic links are followed, and an existing file keeps its permissions.

    Raises:
        OSError: it could not be written, or is a pipe, a folder or the like, or is write-protected: renaming
            replaces these without asking. It names `path`.
    """
    target = Path(os.path.realpath(path))
    partial_file = target.parent / f".{target.name}.{secrets.token_hex(8)}.partial"  # each writer has its own
    try:
        mode = target.stat().st_mode if os.path.lexists(target) else None
        if mode is not None and not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "It is no regular file")
        if mode is not None and not mode & WRITABLE:
            raise PermissionError(errno.EACCES, "It is write-protected")
        with open(partial_file, "xb") as file:
            remove_abandoned(target, os.fstat(file.fileno()).st_mtime - DAY)
            if mode is not None:
                partial_file.chmod(mode)  # before there is anything to read
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial_file, target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            partial_file.unlink()


def remove_abandoned(target: Path, before: float) -> None:
    """Remove what writers of a file that were killed have left of it, last changed before a point in time."""
    for partial_file in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * 16}.partial"):
        with contextlib.suppress(OSError):
            if partial_file.stat().st_mtime < before:
                partial_file.unlink()


def printable(text: str, keep: str = "") -> str:
    r"""Escape control characters, which could drive a terminal, as \x1b: all but those to `keep`.

    So are those that end a line, or turn the direction of writing, halves of surrogate pairs, and what no
    XML may hold.
    """
    return re.sub(
        r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]",
        lambda found: found[0] if found[0] in keep else found[0].encode("unicode_escape").decode(),
        text,
    )
