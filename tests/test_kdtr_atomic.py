import os
import stat
import zlib

import numpy as np
import pytest
from kdtr_files import names_in

from kdtree import files, kdtr
from kdtree.files import atomic_write

TENSORS = {"a": np.arange(10), "b": np.arange(5.0)}


def write_and_raise(path, failure):
    with atomic_write(path) as file:
        file.write(b"new")
        raise failure


def test_the_file_appears_whole_when_the_block_ends(tmp_path):
    path = tmp_path / "x.bin"
    with atomic_write(path) as file:
        file.write(b"new")
        file.flush()
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert names_in(tmp_path) == ["x.bin"]


@pytest.mark.parametrize("failure", [ValueError, OSError, MemoryError, SystemExit])
def test_a_failure_inside_the_block_leaves_the_old_bytes_alone(tmp_path, failure):
    path = tmp_path / "x.bin"
    path.write_bytes(b"old")
    with pytest.raises(failure):
        write_and_raise(path, failure)
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["x.bin"]


def test_an_interrupt_leaves_no_temporary_file(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        write_and_raise(tmp_path / "x.bin", KeyboardInterrupt)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("step", ["fsync", "rename"])
def test_a_failure_of_the_system_leaves_the_old_bytes_alone(tmp_path, monkeypatch, step):
    path = tmp_path / "x.bin"
    path.write_bytes(b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    if step == "fsync":
        monkeypatch.setattr(files.os, "fsync", fail)
    else:
        monkeypatch.setattr(files.Path, "replace", fail)
    with pytest.raises(OSError, match="No space left"), atomic_write(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["x.bin"]


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_new_file_has_the_permissions_of_a_plain_open(tmp_path, umask):
    old = os.umask(umask)
    try:
        with atomic_write(tmp_path / "atomic") as file:
            file.write(b"x")
        (tmp_path / "plain").open("wb").close()
    finally:
        os.umask(old)
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_a_replaced_file_keeps_its_permissions(tmp_path, mode):
    path = tmp_path / "x.bin"
    path.write_bytes(b"old")
    path.chmod(mode)
    with atomic_write(path) as file:
        file.write(b"new")
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == mode
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.skipif(os.name != "posix", reason="symbolic links")
def test_a_symbolic_link_stays_a_link(tmp_path):
    (tmp_path / "folder").mkdir()
    real, link = tmp_path / "folder" / "real.bin", tmp_path / "link.bin"
    link.symlink_to(real)
    for content in (b"first", b"second"):
        with atomic_write(link) as file:
            file.write(content)
        assert link.is_symlink()
        assert real.read_bytes() == content


def test_a_longest_file_name_can_be_written(tmp_path):
    with atomic_write(tmp_path / ("x" * 255)) as file:
        file.write(b"x")
    assert names_in(tmp_path) == ["x" * 255]


def test_a_missing_folder_and_a_folder_at_the_path_are_os_errors(tmp_path):
    with (
        pytest.raises(FileNotFoundError, match=r"folder does not exist.*missing"),
        atomic_write(tmp_path / "missing/x"),
    ):
        pass
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match="this is a folder"), atomic_write(tmp_path / "folder"):
        pass
    assert names_in(tmp_path) == ["folder"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="fifos")
def test_a_fifo_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="regular file"), atomic_write(tmp_path / "fifo"):
        pass
    assert names_in(tmp_path) == ["fifo"]


def test_two_writers_of_one_path_do_not_mix(tmp_path):
    path = tmp_path / "x.bin"
    with atomic_write(path) as first:
        first.write(b"first")
        with atomic_write(path) as second:
            second.write(b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    assert names_in(tmp_path) == ["x.bin"]


@pytest.mark.parametrize("failure", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("calls_before", [0, 1, 2])
def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch, failure, calls_before):
    path = tmp_path / "x.kdtr"
    kdtr.save(path, TENSORS)
    old = path.read_bytes()
    calls = iter(range(10))

    def fail(data):
        if next(calls) == calls_before:
            raise failure
        return zlib.crc32(data)

    with monkeypatch.context() as patch:
        patch.setattr("kdtree.kdtr.zlib", type("Zlib", (), {"crc32": staticmethod(fail)}))
        patch.setattr("kdtree.kdtr_layout.zlib", type("Zlib", (), {"crc32": staticmethod(fail)}))
        with pytest.raises(failure):
            kdtr.save(path, {"c": np.zeros(1000), "d": np.ones(3)})
    assert path.read_bytes() == old
    assert names_in(tmp_path) == ["x.kdtr"]
    assert (kdtr.load(path).tensors["a"] == TENSORS["a"]).all()


def test_a_refused_save_writes_nothing(tmp_path):
    path = tmp_path / "x.kdtr"
    with pytest.raises(kdtr.KdtrError):
        kdtr.save(path, {"a": np.zeros(3), "b": np.zeros(3, complex)})
    assert names_in(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        kdtr.save(tmp_path / "missing" / "x.kdtr", TENSORS)
    with pytest.raises(IsADirectoryError):
        kdtr.save(tmp_path, TENSORS)
