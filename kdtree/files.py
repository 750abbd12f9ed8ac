"""Write files so that a reader sees the old bytes or the new bytes, never a part."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["atomic_write"]


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` and rename it to `path` when the block succeeds.

    Parameters
    ----------
    path : str or PathLike
        The file to create or replace. A symbolic link is followed, so the link stays a link.

    Yields
    ------
    BinaryIO
        A new, empty, seekable file open for writing. It is flushed and synced before the rename. It has the
        permissions of the file that it replaces, or those that `open` gives to a new file.

    Raises
    ------
    OSError
        The folder is missing, `path` is a folder or another thing that is not a regular file, or a write fails.

    Cost
    ----
    One rename and one sync more than a plain write. While the block runs, old and new bytes both take disk space.

    Invariants
    ----------
    - a failure leaves the old bytes and no other file (test_a_failure_inside_the_block_leaves_the_old_bytes_alone)
    - so does an interrupt (test_an_interrupt_leaves_no_temporary_file)
    - a new file has the permissions of a plain open (test_a_new_file_has_the_permissions_of_a_plain_open)
    - a replaced file keeps its permissions (test_a_replaced_file_keeps_its_permissions)

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_write(f"{folder}/x.bin") as file:
    ...         _ = file.write(b"abc")
    ...     Path(folder, "x.bin").read_bytes()
    b'abc'
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the folder does not exist", str(target.parent))
    mode = target.stat().st_mode if target.exists() else None
    if mode is not None and stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "a file is needed, this is a folder", str(target))
    if mode is not None and not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "only a regular file can be replaced", str(target))
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            if mode is not None:
                temporary.chmod(stat.S_IMODE(mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
