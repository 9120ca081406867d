"""Files of people are replaced whole or not at all; what came out of one drives no terminal."""

import os
import stat
import subprocess
import sys
import unicodedata

import pytest

from attention_course import progress
from attention_course.files import printable, read_text, write_at_once
from attention_course.workspace import read_ledger

on_unix = pytest.mark.skipif(os.name == "nt", reason="Windows has other links and permissions")


@on_unix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o660])
def test_a_linked_file_stays_a_link_and_keeps_its_permissions(tmp_path, monkeypatch, mode):
    (tmp_path / "elsewhere").mkdir()
    target, link, seen = tmp_path / "elsewhere/real", tmp_path / "link", []
    link.symlink_to(target)
    write_at_once(link, b"new")
    target.chmod(mode)

    def synchronized(file: int) -> None:
        seen.append((stat.S_IMODE(os.fstat(file).st_mode), os.fstat(file).st_size, target.read_bytes()))

    monkeypatch.setattr(os, "fsync", synchronized)
    write_at_once(link, b"newer")
    assert seen == [(mode, 5, b"new")], "on the disk, for the same readers, before the old one goes"
    assert (link.is_symlink(), target.read_bytes()) == (True, b"newer")
    assert stat.S_IMODE(target.stat().st_mode) == mode
    assert list(target.parent.iterdir()) == [target]


@on_unix
def test_what_should_not_be_written_stays(tmp_path):
    protected, loop, pipe, folder = (tmp_path / name for name in ("protected", "loop", "pipe", "folder"))
    protected.write_bytes(b"mine")
    protected.chmod(0o444)
    loop.symlink_to(loop)
    os.mkfifo(pipe)
    folder.mkdir()
    before = {path: path.lstat().st_mode for path in tmp_path.iterdir()}
    for path, kind, said in (
        (protected, PermissionError, "It is write-protected"),
        (loop, OSError, "symbolic links"),
        (pipe, OSError, "It is no regular file"),
        (folder, OSError, "It is no regular file"),
        (tmp_path / "no" / "a", FileNotFoundError, "No such file"),
        (protected / "a", NotADirectoryError, "Not a directory"),
        (tmp_path / ("a" * 256), OSError, "name too long"),
    ):
        with pytest.raises(kind, match=said) as caught:
            write_at_once(path, b"new")
        assert caught.value.filename == str(path)
    assert protected.read_bytes() == b"mine"
    assert {path: path.lstat().st_mode for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_whoever_interrupts_it_keeps_the_old_file(tmp_path, monkeypatch, step):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    (tmp_path / "a").write_bytes(b"old")
    monkeypatch.setattr(os, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_at_once(tmp_path / "a", b"new")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == {tmp_path / "a": b"old"}


KILLED = "import os, sys; from attention_course import files; os.fsync = lambda file: os._exit(9)"


def test_what_a_killed_writer_left_is_removed_a_day_later(tmp_path):
    """Of this very file: another that is called like a pattern for it, or its beginning, keeps its own."""
    path, stays = tmp_path / "[a]", set()
    for name, hours in (("[a]", 25), ("[a]", 23), ("[a].b", 25), ("a", 25)):
        before = set(tmp_path.iterdir())
        command = [sys.executable, "-c", f"{KILLED}; files.write_at_once(sys.argv[1], b'new')"]
        assert subprocess.run([*command, str(tmp_path / name)], check=False).returncode == 9
        (left,) = set(tmp_path.iterdir()) - before
        times = left.stat().st_mtime - hours * 3600
        os.utime(left, (times, times))
        if (name, hours) != ("[a]", 25):
            stays.add(left)
    write_at_once(path, b"new")
    assert set(tmp_path.iterdir()) == {path, *stays}


@pytest.mark.parametrize("keep", ["", "\n\t"])
def test_control_characters_are_written_out(keep):
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    shown = printable(every, keep)
    left = [c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert sorted(left) == sorted(keep)
    assert not [
        c for c in shown if unicodedata.bidirectional(c) in ("LRE", "RLE", "LRO", "RLO", "LRI", "RLI")
    ]
    assert printable(f"\x1b[2J\x9f\u2028\u202e\udc80{keep}", keep) == rf"\x1b[2J\x9f\u2028\u202e\udc80{keep}"
    assert printable("äß\xa0\u200d→ \U0001f600") == "äß\xa0\u200d→ \U0001f600"


@on_unix
@pytest.mark.parametrize("name", ["pipe", "endless", "folder", "large"])
def test_what_would_not_end_or_fill_the_memory_is_not_read(tmp_path, name):
    path = tmp_path / name
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    with (tmp_path / "large").open("wb") as file:
        file.truncate(2**24 + 1)
    with pytest.raises(ValueError, match="no file of at most 16 MB"):
        read_text(path)
    path.rename(tmp_path / "progress.json")
    assert read_ledger(tmp_path / "progress.json")[2]
    with pytest.raises(ValueError, match="is damaged, or isn't a progress file"):
        progress.read(tmp_path / "progress.json")
