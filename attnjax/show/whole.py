"""A file appears whole or not at all."""

import errno
import os
import pathlib
import tempfile


def write_whole(path: str | os.PathLike, data: bytes | str) -> pathlib.Path:
    """Writes a file so that whoever reads it, also after a kill or on a full disk, finds the old bytes or the new.

    Args:
        path: where; its folder must exist.
        data: text is written as UTF-8.

    Returns:
        The path.

    Raises:
        OSError: if it cannot be written; nothing is left beside it then.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    try:
        number, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None  # the name asked for, not the one beside it
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, 0o666 & ~_umask())  # mkstemp makes a file that only its owner can read
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
    return path


def _umask() -> int:
    """What new files of this process leave out; reading it means setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
