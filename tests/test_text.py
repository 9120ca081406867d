"""A text is read as it stands, the floors are the lowest losses, and no id gets lost."""

import hashlib
import http.server
import math
import socket
import threading
from collections import Counter
from pathlib import Path

import pooch
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_course import text as text_module
from attention_course.stories import write_stories
from attention_course.text import (
    CharTokenizer,
    Corpus,
    conditional_entropy,
    get_batch,
    load_text,
    train_val_split,
)


@pytest.fixture(scope="module")
def stories():
    return write_stories()


# The floors


def brute_force(ids, n):
    """Look every n-gram up in a table of counts, one position at a time."""
    table = {}
    for t in range(n - 1, len(ids)):
        table.setdefault(tuple(ids[t - n + 1 : t]), Counter())[ids[t]] += 1
    loss = 0.0
    for t in range(n - 1, len(ids)):
        row = table[tuple(ids[t - n + 1 : t])]
        loss -= math.log(row[ids[t]] / row.total())
    return loss / (len(ids) - n + 1)


@given(ids=st.lists(st.integers(0, 3), min_size=1, max_size=60), n=st.integers(1, 5))
def test_floor_equals_a_table_of_counts(ids, n):
    """Whatever the numbers of the tokens are."""
    ids = ids * n  # long enough
    numbers = torch.tensor([2**62, -3, 11, 0])[torch.tensor(ids)]
    assert conditional_entropy(numbers, n) == pytest.approx(brute_force(ids, n), abs=1e-9)


# Files


def test_reads_a_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes("\ufeffЯ помню\r\nчудное\rмгновенье\n".encode())
    assert load_text(path) == load_text(str(path)) == "Я помню\nчудное\nмгновенье\n"


def test_names_win_over_files_and_a_folder_helps(tmp_path, monkeypatch, stories):
    monkeypatch.chdir(tmp_path)
    Path("stories").write_text("mine")
    assert load_text("stories") == stories
    assert load_text("./stories") == "mine"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert load_text("~/stories") == "mine"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty. Name a file with text"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"ab\xef\xe8", "is not UTF-8: byte 0xef at position 2. .*encoding='cp1251'"),
        (b"\xef\xbb\xbfab\xff", "is not UTF-8: byte 0xff at position 5"),
        ("я".encode()[:1], "is not UTF-8: byte 0xd1 at position 0"),
        (b"abc\0de\0f", "is binary: character 3 is NUL"),
        (b"\0abc", "is binary: character 0 is NUL"),
        ("\ufeffя".encode("utf-16-le"), "is not UTF-8: .*encoding='utf-16'"),
        ("\ufeffя".encode("utf-16-be"), "is not UTF-8: .*encoding='utf-16'"),
        ("\ufeffя".encode("utf-32-le"), "is not UTF-8: .*encoding='utf-32'"),
        ("\ufeffя".encode("utf-32-be"), "is not UTF-8: .*encoding='utf-32'"),
    ],
)
def test_load_text__what_is_no_text_is_refused(tmp_path, content, words):
    path = tmp_path / "data.bin"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"data.bin {words}"):
        load_text(path)


def test_a_file_that_memory_cannot_hold_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "large.txt"
    with path.open("wb") as file:
        file.truncate(text_module.MAX_BYTES + 1)  # takes no room on a disk
    with pytest.raises(
        ValueError, match=r"large.txt has 1,000,000,001 bytes, expected at most 1,000,000,000: .*Read a part"
    ):
        load_text(path)
    path.write_text("four")
    monkeypatch.setattr(text_module, "MAX_BYTES", 4)
    assert load_text(path) == "four"


def test_a_text_is_no_name_of_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text in ("Once upon a time\nthere was", "Once upon a time " * 16, "Once upon a time " * 100_000):
        with pytest.raises(FileNotFoundError, match=r"Corpus.of\(text\)") as caught:
            load_text(text)
        assert len(str(caught.value)) < 200
    for name in ("two\nlines", "x" * 255):
        Path(name).write_text("mine")
        assert load_text(name) == "mine"


# Tiny Shakespeare


LINES = b"First Citizen:\r\nBefore we proceed any further, hear me speak.\n"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Expect LINES, in a folder of this test, from a port where nobody listens; return the file's path."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/input.txt"
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    monkeypatch.setattr(text_module, "SHAKESPEARE_URL", url)
    monkeypatch.setattr(text_module, "SHAKESPEARE_SHA256", hashlib.sha256(LINES).hexdigest())
    return tmp_path / "cache" / "attention_course" / "tinyshakespeare.txt"


@pytest.fixture
def server(cache, monkeypatch):
    """Serve LINES under the URL; return the list of requests."""
    requests = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(LINES)))
            self.end_headers()
            self.wfile.write(LINES)

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        monkeypatch.setattr(
            text_module, "SHAKESPEARE_URL", f"http://127.0.0.1:{running.server_address[1]}/input.txt"
        )
        yield requests
        running.shutdown()
        thread.join()


def test_downloads_once_with_a_progress_bar(server, cache, capfd):
    expected = LINES.decode().replace("\r\n", "\n")
    assert load_text("tiny-shakespeare") == expected
    assert "100%" in capfd.readouterr().err
    assert load_text("tiny-shakespeare") == expected
    assert server == ["/input.txt"]
    assert cache.read_bytes() == LINES
    assert list(cache.parent.iterdir()) == [cache]


def assert_says_what_to_do(message, cache):
    assert message.startswith("tiny-shakespeare could not be downloaded.")
    for part in (text_module.SHAKESPEARE_URL, str(cache), text_module.SHAKESPEARE_SHA256, "The error was: "):
        assert part in message


def test_offline_the_file_can_be_put_there_by_hand(cache):
    with pytest.raises(OSError, match="could not be downloaded") as caught:
        load_text("tiny-shakespeare")
    assert_says_what_to_do(str(caught.value), cache)
    assert "A different file is there" not in str(caught.value)
    assert list(cache.parent.iterdir()) == []  # the folder is there to put it into
    cache.write_bytes(b"<html>404</html>")
    with pytest.raises(OSError, match="A different file is there now; replace it") as caught:
        load_text("tiny-shakespeare")
    assert_says_what_to_do(str(caught.value), cache)
    assert cache.read_bytes() == b"<html>404</html>"
    cache.write_bytes(LINES)
    assert load_text("tiny-shakespeare") == LINES.decode().replace("\r\n", "\n")


# The tokenizer


unicode_text = st.text(st.characters(exclude_categories=["Cs"]))


@given(text=unicode_text, more=unicode_text)
def test_round_trip_over_unicode(text, more):
    tokenizer = CharTokenizer(text + more + "\n")
    ids = tokenizer.encode(text)
    assert ids.dtype == torch.int64
    assert ids.shape == (len(text),)
    assert tokenizer.decode(ids) == text
    assert tokenizer.characters == "".join(sorted(set(text + more + "\n")))
    assert [tokenizer.characters[i] for i in ids] == list(text)


def test_tokenizers_are_equal_when_the_characters_are():
    tokenizer = CharTokenizer("banana 😀")
    assert (tokenizer.vocab_size, repr(tokenizer)) == (5, "CharTokenizer(' abn😀')")
    again = CharTokenizer(tokenizer.characters)
    assert again == tokenizer
    assert hash(again) == hash(tokenizer) != hash(CharTokenizer("ank"))
    assert tokenizer not in (CharTokenizer("ank"), " abn😀")
    assert tokenizer.decode(torch.tensor([4, 2], dtype=torch.int32)) == "😀b"


# Batches


def test_split_keeps_the_order():
    train, val = train_val_split(torch.arange(25))
    assert train.tolist() == list(range(22))
    assert val.tolist() == [22, 23, 24]  # a tenth of 25, rounded up
    assert [len(part) for part in train_val_split(torch.arange(10), 0.5)] == [5, 5]
    assert [len(part) for part in train_val_split(torch.arange(2), 0.5)] == [1, 1]
    of_nano_gpt = [1_003_854, 111_540]
    assert [len(part) for part in train_val_split(torch.arange(1_115_394))] == of_nano_gpt


@given(
    length=st.integers(2, 40),
    block_size=st.integers(1, 39),
    batch_size=st.integers(1, 7),
    seed=st.integers(0, 99),
)
def test_get_batch__y_is_x_one_step_later(length, block_size, batch_size, seed):
    block_size = min(block_size, length - 1)
    ids = torch.arange(100, 100 + length)
    x, y = get_batch(ids, block_size, batch_size, torch.Generator().manual_seed(seed))
    assert x.shape == y.shape == (batch_size, block_size)
    assert torch.equal(y, x + 1)
    assert torch.equal(x, x[:, :1] + torch.arange(block_size))
    again, _ = get_batch(ids, block_size, batch_size, torch.Generator().manual_seed(seed))
    torch.manual_seed(seed)
    default, _ = get_batch(ids, block_size, batch_size)
    assert torch.equal(x, again)
    assert torch.equal(x, default)
    assert x.min() >= 100
    assert y.max() < 100 + length
    assert x.is_contiguous()
    assert y.is_contiguous()  # y.view(-1) works


def test_every_start_is_drawn_equally_often():
    ids = torch.arange(11)
    x, y = get_batch(ids, 4, 70_000, torch.Generator().manual_seed(0))
    counts = x[:, 0].bincount(minlength=7)
    assert len(counts) == 7  # starts 0 to 6: the last y is id 10, the end of the text
    assert y.max() == 10
    assert (counts - 10_000).abs().max() < 5 * math.sqrt(10_000)


def test_batches_lie_where_the_ids_are():
    x, y = get_batch(
        torch.zeros(100, dtype=torch.int64, device="meta"), 8, 4, torch.Generator().manual_seed(1)
    )
    assert x.device.type == y.device.type == "meta"
    assert x.shape == y.shape == (4, 8)


def test_corpus_of_a_text(stories):
    data = Corpus.of(stories)
    assert len(data.train) + len(data.val) == len(stories)
    assert len(data.val) == math.ceil(len(stories) / 10)
    assert data.tokenizer.decode(data.train) + data.tokenizer.decode(data.val) == stories
    with pytest.raises(AttributeError):
        data.train = data.val
