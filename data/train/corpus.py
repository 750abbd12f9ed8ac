"""Collect the corpus: the Python sources of CPython's standard library, pinned by a manifest of hashes.

    python data/train/corpus.py [LIB]

LIB is the folder of the library: `lib/python3.13` of an installed CPython 3.13.0 with its tests, or `Lib` of its
sources. Without it, that of the running interpreter is taken. The texts are under the PSF licence.
"""

import argparse
import sysconfig
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kdtree.files import atomic_write
from sizes import BOS

__all__ = ["OUT", "Corpus", "Tokens", "collect", "load", "split"]

HERE = Path(__file__).parent
MANIFEST = HERE / "manifest.txt"
OUT = HERE.parents[1] / "out" / "train"
TESTS = {"test", "tests", "idle_test"}
GENERATED = ("_sysconfigdata", "pydoc_data/topics", "encodings/")  # tables, or made when CPython is built
ONE_IN = 16  # of the files outside the tests, as many are held out


Tokens: TypeAlias = NDArray[np.uint16]


class Corpus(NamedTuple):
    """Tokens of all files behind each other, each file behind its BOS."""

    train_T: Tokens
    held_out_T: Tokens


def split(path: str) -> str:
    """Return "train" or "held out" for a relative path; tests are never held out."""
    if TESTS & set(PurePosixPath(path).parts):
        return "train"
    return "train" if int(sha256(path.encode()).hexdigest()[:8], 16) % ONE_IN else "held out"


def find(library: Path) -> dict[str, bytes]:
    """Return the sources of a library folder by relative path, in order; a file that is not UTF-8 is left out."""
    sources = {}
    for file in sorted(library.rglob("*.py")):
        path = file.relative_to(library).as_posix()
        if path.startswith(("site-packages/", *GENERATED)):
            continue
        content = file.read_bytes()
        try:
            content.decode()
        except UnicodeDecodeError:
            continue
        if content:
            sources[path] = content
    return sources


def manifest_of(sources: dict[str, bytes]) -> str:
    """Return one line a file: hash, bytes, part, path."""
    return "".join(
        f"{sha256(content).hexdigest()} {len(content):7} {split(path):8} {path}\n" for path, content in sources.items()
    )


def collect(library: Path) -> dict[str, bytes]:
    """Return exactly the files of the manifest; ValueError names the first that is missing or differs."""
    sources = {}
    for line in MANIFEST.read_text().splitlines():
        digest, path = line[:64], line[82:]
        file = library / path
        if not file.is_file():
            raise ValueError(f"{library}: {path} is missing, needs the library of CPython 3.13.0 with its tests")
        content = file.read_bytes()
        if sha256(content).hexdigest() != digest:
            raise ValueError(f"{library}: {path} differs from the manifest, needs the library of CPython 3.13.0")
        sources[path] = content
    return sources


def tokens(sources: dict[str, bytes], part: str) -> Tokens:
    """Return the tokens of one part."""
    files = [content for path, content in sources.items() if split(path) == part]
    return np.concatenate([np.append(np.uint16(BOS), np.frombuffer(content, np.uint8)) for content in files])


def load() -> Corpus:
    """Return what this script collected before."""
    with np.load(OUT / "corpus.npz") as arrays:
        return Corpus(arrays["train_T"], arrays["held_out_T"])


def main() -> None:
    """Collect the corpus, or write the manifest of another library."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", nargs="?", type=Path, default=Path(sysconfig.get_paths()["stdlib"]))
    parser.add_argument("--write-manifest", action="store_true", help="pin the files of LIB instead of checking them")
    arguments = parser.parse_args()
    if arguments.write_manifest:
        MANIFEST.write_text(manifest_of(find(arguments.library)))
    sources = collect(arguments.library)
    corpus = Corpus(tokens(sources, "train"), tokens(sources, "held out"))
    OUT.mkdir(parents=True, exist_ok=True)
    with atomic_write(OUT / "corpus.npz") as file:
        np.savez_compressed(file, **corpus._asdict())
    print(f"{len(sources)} files, {len(corpus.train_T):,} tokens to train on, {len(corpus.held_out_T):,} held out")


if __name__ == "__main__":
    main()
