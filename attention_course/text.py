"""Rung 8: a text, the numbers that a model sees in its place, and batches of them.

The floors of models that look back a few characters only are counted in the text itself.
"""

import codecs
import math
import os
from dataclasses import dataclass
from numbers import Real
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from attention_course.checks import check_generator, check_ids, check_sizes, check_type
from attention_course.names import look_up
from attention_course.stories import write_stories


def ngram_floor(ids: Int[Tensor, " T"], n: int) -> float:
    """Count the lowest mean loss that any table of n-grams can have on these ids, in nats per token.

    Such a table gives probabilities for a token from the n - 1 before it. The best one holds the shares that
    are counted in the ids. The first n - 1 tokens have too few before them and are left out.

    The table has seen the text that it is judged on: with a large n it has learned it by heart, and the floor
    falls to 0, below any entropy. It tells about the language only while most n-grams occur often.

    Args:
        ids: shape (T,).
        n: 1 for unigrams (which look at nothing), 2 for bigrams, and so on.

    Raises:
        TypeError: ids is no integer tensor of shape (T,), or n no integer.
        ValueError: n is below 1, or there are fewer than n ids.
    """
    check_ids(ids, "ngram_floor")
    check_sizes("ngram_floor", 1, n=n)
    if len(ids) < n:
        raise ValueError(f"ngram_floor: n = {n} with {len(ids)} ids, expected n from 1 to their number.")
    vocabulary, tokens = np.unique(ids.cpu().numpy(), return_inverse=True)
    T = len(tokens) - n + 1

    def append(grams, k):  # a number for each gram with one more token; the numbers have no gaps
        return np.unique(grams * len(vocabulary) + tokens[k : k + T], return_inverse=True)[1]

    def count_log_count(grams):
        counts = np.bincount(grams)
        return counts @ np.log(counts)

    contexts = np.zeros(T, dtype=np.int64)
    for k in range(n - 1):
        contexts = append(contexts, k)
    return float(count_log_count(contexts) - count_log_count(append(contexts, n - 1))) / T


SHAKESPEARE_URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


def tiny_shakespeare() -> str:
    """Return 1,115,394 characters of Shakespeare, downloaded once and then kept in the user's cache.

    Raises:
        OSError: there was no download, or of another file; the message says how to put the right one there.
    """
    import pooch

    path = Path(pooch.os_cache("attention_course")) / "tinyshakespeare.txt"
    checksum = f"sha256:{SHAKESPEARE_SHA256}"
    try:
        pooch.retrieve(SHAKESPEARE_URL, checksum, path.name, path.parent, progressbar=True)
    except (OSError, ValueError) as error:
        there = "Another file lies there now; replace it. " if path.exists() else ""
        raise OSError(
            f"tiny-shakespeare could not be downloaded. Get it from\n  {SHAKESPEARE_URL}\n"
            f"in a browser or on another machine, and save it as\n  {path}\n"
            f"From then on no network is needed. {there}Its checksum is {checksum}.\nWhat happened: {error}"
        ) from error
    return read_text(path)


LARGEST = 10**9  # bytes of a file, about what 16 GB of memory can hold as ids while they are made
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",  # that of UTF-32 begins with it
    codecs.BOM_UTF16_BE: "utf-16",
}


def read_text(path: Path) -> str:
    r"""Read a UTF-8 file. All its line ends become "\n", and a byte order mark is dropped.

    Raises:
        ValueError: the file is larger than LARGEST, empty, not UTF-8, or binary.
    """
    if (size := path.stat().st_size) > LARGEST:
        raise ValueError(
            f"{path} has {size:,} bytes, expected at most {LARGEST:,}: as ids, a character takes 8 bytes of "
            "memory, and more while they are made. Cut a part off: open(path).read(10_000_000)."
        )
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        marks = (name for mark, name in MARKS.items() if error.object.startswith(mark))
        raise ValueError(
            f"{path} is not UTF-8: byte 0x{error.object[error.start]:02x} at position {error.start}. Save it "
            "in UTF-8, or read it yourself with its own encoding: "
            f"open(path, encoding={next(marks, 'cp1251')!r}).read()."
        ) from None
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if not text:
        raise ValueError(f"{path} is empty. Name a file with text in it.")
    if (position := text.find("\0")) >= 0:
        raise ValueError(f"{path} is binary: character {position} is NUL. Name a text file, in UTF-8.")
    return text


TEXTS = {"stories": write_stories, "tiny-shakespeare": tiny_shakespeare}


def load_text(name_or_path: str | PathLike) -> str:
    """Get a text by its name, or from a file.

    Args:
        name_or_path: "stories" (embedded), "tiny-shakespeare" (downloaded when it is first asked for), or
            the path of a UTF-8 file. A file that is called like one of these needs its folder: "./stories".

    Raises:
        FileNotFoundError: there is neither such a text nor such a file.
        OSError: the text could not be downloaded.
        TypeError: this is no str and no path.
        ValueError: this is no file, or an empty one, one that is too large, not in UTF-8, or binary.
    """
    check_type(name_or_path, (str, PathLike), "load_text", "name_or_path")
    name = str(name_or_path)
    if name in TEXTS:
        return TEXTS[name]()
    path = Path(os.path.expanduser(name)).absolute()
    if (len(name) > 255 or "\n" in name) and not os.path.exists(path):
        raise FileNotFoundError(
            f"load_text: {name[:40]!r}... is no file, expected a name or a path. A text needs no "
            "loading: Data.of(text)."
        )
    if not path.exists():
        try:
            look_up(name, TEXTS, "text")
        except ValueError as error:
            raise FileNotFoundError(f"load_text: there is no file {path}. {error}") from None
    if not path.is_file():
        raise ValueError(f"load_text: {path} is no file. Name a text file, perhaps one in that folder.")
    return read_text(path)


def code_points(text: str) -> np.ndarray:
    """Return the numbers that Unicode gives the characters. Half of a surrogate pair is a ValueError."""
    try:
        return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"CharTokenizer: {text[error.start]!r} at position {error.start} is half of a surrogate pair, "
            "no character. Read the text again without errors='surrogateescape' or 'surrogatepass'."
        ) from None


class CharTokenizer:
    """Number the characters of a text, in the order of Unicode.

    Args:
        text: whose characters are numbered. A tokenizer made from another's `characters` is equal to it.

    Attributes:
        characters: each character once, sorted; the id of a character is its place in here.

    Raises:
        TypeError: the text is no str.
        ValueError: the text is empty, or holds half of a surrogate pair.
    """

    def __init__(self, text: str):
        check_type(text, str, "CharTokenizer", "text")
        if not text:
            raise ValueError("CharTokenizer: the text is empty. Pass the text to number.")
        occurs = np.zeros(0x110000, dtype=bool)  # one entry for each code point of Unicode
        occurs[code_points(text)] = True
        self._codes = np.flatnonzero(occurs).astype("<u4")
        self._ids = np.full(len(occurs), -1, dtype=np.int64)
        self._ids[self._codes] = np.arange(len(self._codes))
        self.characters = self._codes.tobytes().decode("utf-32-le")

    @property
    def vocab_size(self) -> int:
        """The number of different characters."""
        return len(self.characters)

    def encode(self, text: str) -> Int[Tensor, " T"]:
        """Turn a text into ids, shape (T,), int64.

        Raises:
            TypeError: the text is no str.
            ValueError: a character is unknown, or half of a surrogate pair.
        """
        check_type(text, str, "encode", "text")
        ids = self._ids[code_points(text)]
        if len(ids) and ids.min() < 0:
            position = int(ids.argmin())
            unknown = text[position]
            raise ValueError(
                f"CharTokenizer: {unknown!r} (U+{ord(unknown):04X}) at position {position} is none of "
                f"the {self.vocab_size} characters that it knows. Make one from a text with that character, "
                f"or leave it out: text.replace({unknown!r}, '')."
            )
        return torch.from_numpy(ids)

    def decode(self, ids: Int[Tensor, " T"]) -> str:
        """Turn ids, shape (T,), back into a text.

        Raises:
            ValueError: an id is out of range.
        """
        check_ids(ids, "decode")
        places = ids.cpu().numpy()
        unknown = np.flatnonzero((places < 0) | (places >= self.vocab_size))
        if len(unknown):
            raise ValueError(
                f"CharTokenizer: id {places[unknown[0]]} at position {unknown[0]} stands for no character: "
                f"ids go from 0 to {self.vocab_size - 1}. Use the tokenizer that made them."
            )
        return self._codes[places].tobytes().decode("utf-32-le")

    def __eq__(self, other):
        return isinstance(other, CharTokenizer) and self.characters == other.characters

    def __hash__(self):
        return hash(self.characters)

    def __repr__(self):
        return f"CharTokenizer({self.characters!r})"


def train_val_split(
    ids: Int[Tensor, " T"], val_share: float = 0.1
) -> tuple[Int[Tensor, " T_train"], Int[Tensor, " T_val"]]:
    """Keep the end of a text for validation: what was learned must hold where nothing was learned.

    Args:
        ids: shape (T,).
        val_share: share of the ids that is kept, rounded up to a whole number of them.

    Returns:
        Ids to train on, then ids to validate on, both in the memory of `ids`.

    Raises:
        TypeError: ids is no integer tensor of shape (T,), or val_share no number.
        ValueError: val_share is not between 0 and 1, or leaves nothing to train on.
    """
    check_ids(ids, "train_val_split")
    check_type(val_share, Real, "train_val_split", "val_share")
    cut = len(ids) - math.ceil(len(ids) * val_share) if 0 < val_share < 1 else 0
    if cut < 1:
        raise ValueError(
            f"train_val_split: val_share = {val_share} of {len(ids)} ids, expected a share between 0 and 1 "
            "that leaves at least one id to train on."
        )
    return ids[:cut], ids[cut:]


def get_batch(
    ids: Int[Tensor, " T_text"], block_size: int, batch_size: int, generator: torch.Generator | None = None
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Draw pieces of a text, each start equally likely, and for each of their tokens the one that follows.

    Args:
        ids: shape (T_text,), on any device.
        block_size: T, the length of a piece.
        batch_size: B, the number of pieces.
        generator: where the starts come from; one on the CPU, wherever the ids are.

    Returns:
        x and y, each (B, T), on the device of the ids. y[b, t] follows x[b, t] in the text.

    Raises:
        TypeError: ids is no integer tensor of shape (T_text,), or another argument is of the wrong kind.
        ValueError: a size is below 1, or the text has fewer than block_size + 1 ids.
    """
    check_ids(ids, "get_batch")
    check_sizes("get_batch", 1, block_size=block_size, batch_size=batch_size)
    check_generator(generator, "get_batch")
    if len(ids) <= block_size:
        raise ValueError(
            f"get_batch: {len(ids)} ids are too few for block_size = {block_size}: y is one step later, so "
            f"at least {block_size + 1} are needed. Take a longer text or a smaller block_size."
        )
    starts = torch.randint(len(ids) - block_size, (batch_size, 1), generator=generator)
    places = (starts + torch.arange(block_size)).to(ids.device)  # (B, T)
    return ids[places], ids[places + 1]


@dataclass(frozen=True, eq=False)
class Data:
    """Ids to train on and to validate on, each of shape (T,), and the tokenizer that made them."""

    train: Tensor
    val: Tensor
    tokenizer: CharTokenizer

    @classmethod
    def of(cls, text: str) -> "Data":
        """Number the characters of a text and keep its last tenth for validation."""
        tokenizer = CharTokenizer(text)
        return cls(*train_val_split(tokenizer.encode(text)), tokenizer)
