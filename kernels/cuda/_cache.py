"""What a compiler made is kept on disk, in `$XDG_CACHE_HOME/kdtree`, by the hash of all that went into it."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

__all__ = ["folder", "kept"]


def kept(kind: str, suffix: str, parts: Iterable[str], make: Callable[[Path], object]) -> Path:
    """Return the file that these parts give: `make`, called with a path, writes it unless it is there.

    Several processes may make one file at once: each writes a file of its own and renames it. What `make` raises leaves
    no file.
    """
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    target = folder(kind) / f"{key}{suffix}"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=target.parent) as own:
            made = Path(own, target.name)
            make(made)
            made.replace(target)
    return target


@lru_cache
def folder(kind: str) -> Path:
    """Return `$XDG_CACHE_HOME/kdtree/<kind>`, or a new temporary folder where that cannot be written."""
    try:
        kept_in = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kdtree", kind)
        kept_in.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=kept_in):
            return kept_in
    except (OSError, RuntimeError):  # RuntimeError: the user has no home
        return Path(tempfile.mkdtemp(prefix=f"kdtree-{kind}-"))
