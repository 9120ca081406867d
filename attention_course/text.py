"""Read a text, tokenize it, draw batches, and compute the floor of any n-gram model."""

import codecs
import math
import os
from dataclasses import dataclass
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from attention_course.checks import check_generator, check_ids, check_sizes, check_type, check_unicode
from attention_course.names import look_up, shown
from attention_course.stories import write_stories


def conditional_entropy(ids: Int[Tensor, " T"], n: int) -> float:
    """Return the empirical conditional entropy of a token given the n - 1 before it, in nats.

    It is the lowest cross-entropy that any table of n-grams can reach on these ids: the best table holds the
    relative frequencies counted in the ids themselves. The first n - 1 tokens have too little context and are
    left out.

    While most n-grams are frequent, it estimates the source's conditional entropy given n - 1 tokens, which
    is never below the source's entropy per token. For large n the table has memorized the text, and the
    value falls towards 0, below that entropy.

    Args:
        ids: shape (T,).
        n: 1 for unigrams (no context), 2 for bigrams, and so on.
    """
    check_ids(ids, "conditional_entropy")
    check_sizes("conditional_entropy", 1, n=n)
    if len(ids) < n:
        raise ValueError(f"conditional_entropy: n = {n} with {len(ids)} ids, expected at least n ids.")
    vocabulary, tokens = np.unique(ids.cpu().numpy(), return_inverse=True)
    T = len(tokens) - n + 1

    def append(grams, k):  # extend each gram by a token; renumber the distinct grams 0, 1, 2, ...
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
    """Return 1,115,394 characters of Shakespeare, downloaded once and kept in the user's cache.

    Raises:
        OSError: the download failed or its checksum is wrong; the message says how to get the file by hand.
    """
    import pooch

    path = Path(pooch.os_cache("attention_course")) / "tinyshakespeare.txt"
    checksum = f"sha256:{SHAKESPEARE_SHA256}"
    try:
        pooch.retrieve(SHAKESPEARE_URL, checksum, path.name, path.parent, progressbar=True)
    except (OSError, ValueError) as error:
        there = "A different file is there now; replace it. " if path.exists() else ""
        raise OSError(
            f"tiny-shakespeare could not be downloaded. Get it from\n  {SHAKESPEARE_URL}\n"
            f"in a browser or on another machine, and save it as\n  {path}\n"
            f"After that no network is needed. {there}Its checksum is {checksum}.\nThe error was: {error}"
        ) from error
    return read_text(path)


MAX_BYTES = 10**9  # bytes of a file; encoding one of this size needs about 16 GB of memory
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",  # a prefix of the UTF-32 mark, so it comes after that
    codecs.BOM_UTF16_BE: "utf-16",
}


def read_text(path: Path) -> str:
    r"""Read a UTF-8 file, normalize line endings to "\n", and drop a byte order mark."""
    if (size := path.stat().st_size) > MAX_BYTES:
        raise ValueError(
            f"{path} has {size:,} bytes, expected at most {MAX_BYTES:,}: as an id, a character takes 8 bytes "
            "of memory, and more during encoding. Read a part of it: open(path).read(10_000_000)."
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


def tale() -> str:
    """Return a tale of 30 lines that no model has read, since it was written for this course."""
    return read_text(Path(__file__).parent / "tale.txt")


TEXTS = {"stories": write_stories, "tale": tale, "tiny-shakespeare": tiny_shakespeare}


def load_text(name_or_path: str | PathLike) -> str:
    """Get a text by its name, or from a file.

    Args:
        name_or_path: "stories" (generated), "tale" (a page of English), "tiny-shakespeare" (downloaded on
            first use), or the path of a UTF-8 file. A file with one of these names needs its folder:
            "./stories".

    Raises:
        FileNotFoundError: no text and no file has this name.
        OSError: the text could not be downloaded.
        ValueError: the path is not a file, or the file is empty, too large, not UTF-8, or binary.
    """
    check_type(name_or_path, (str, PathLike), "load_text", "name_or_path")
    name = str(name_or_path)
    if name in TEXTS:
        return TEXTS[name]()
    path = Path(os.path.expanduser(name)).absolute()
    if (len(name) > 255 or "\n" in name) and not os.path.exists(path):
        raise FileNotFoundError(
            f"load_text: {name[:40]!r}... is not a file, expected a name or a path. A text needs no "
            "loading: Corpus.of(text)."
        )
    if not os.path.exists(path):
        try:
            look_up(name, TEXTS, "text")
        except ValueError as error:
            raise FileNotFoundError(f"load_text: there is no file {path}. {error}") from None
    if not path.is_file():
        raise ValueError(f"load_text: {path} is not a file. Name a text file, perhaps one in that folder.")
    return read_text(path)


def code_points(text: str) -> np.ndarray:
    """Return the Unicode code points of a text. A lone surrogate raises ValueError."""
    check_unicode(text, "CharTokenizer")
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")


@runtime_checkable
class Tokenizer(Protocol):
    """What tokenizers share: `CharTokenizer`, and `BytePairTokenizer`."""

    @property
    def vocab_size(self) -> int:
        """The number of tokens in the vocabulary."""
        ...

    def encode(self, text: str) -> Int[Tensor, " T"]:
        """Encode a text as ids, shape (T,), int64."""
        ...

    def decode(self, ids: Int[Tensor, " T"]) -> str:
        """Decode ids, shape (T,), to a text."""
        ...


class CharTokenizer:
    """A character-level tokenizer: ids follow code-point order.

    Args:
        text: defines the vocabulary. A tokenizer made from another's `characters` is equal to it.

    Attributes:
        characters: the vocabulary, sorted; the id of a character is its index.
    """

    def __init__(self, text: str):
        check_type(text, str, "CharTokenizer", "text")
        if not text:
            raise ValueError("CharTokenizer: the text is empty. Pass a text with at least one character.")
        occurs = np.zeros(0x110000, dtype=bool)  # one entry for each code point of Unicode
        occurs[code_points(text)] = True
        self._codes = np.flatnonzero(occurs).astype("<u4")
        self._ids = np.full(len(occurs), -1, dtype=np.int64)
        self._ids[self._codes] = np.arange(len(self._codes))
        self.characters = self._codes.tobytes().decode("utf-32-le")

    @property
    def vocab_size(self) -> int:
        """The number of characters in the vocabulary."""
        return len(self.characters)

    def encode(self, text: str) -> Int[Tensor, " T"]:
        """Encode a text as ids, shape (T,), int64.

        Raises:
            ValueError: a character is not in the vocabulary, or is a lone surrogate.
        """
        check_type(text, str, "encode", "text")
        ids = self._ids[code_points(text)]
        if len(ids) and ids.min() < 0:
            position = int(ids.argmin())
            unknown = text[position]
            raise ValueError(
                f"CharTokenizer: {unknown!r} (U+{ord(unknown):04X}) at position {position} is not one of "
                f"the {self.vocab_size} characters that it knows. Make one from a text with that character, "
                f"or leave it out: text.replace({unknown!r}, '')."
            )
        return torch.from_numpy(ids)

    def decode(self, ids: Int[Tensor, " T"]) -> str:
        """Decode ids, shape (T,), to a text.

        Raises:
            ValueError: an id is out of range.
        """
        check_ids(ids, "decode")
        places = ids.cpu().numpy()
        unknown = np.flatnonzero((places < 0) | (places >= self.vocab_size))
        if len(unknown):
            raise ValueError(
                f"CharTokenizer: id {places[unknown[0]]} at position {unknown[0]} is not in the vocabulary: "
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
    """Split off the end of a text for validation.

    Args:
        ids: shape (T,).
        val_share: fraction of the ids for validation, rounded up to a whole number of ids.

    Returns:
        Training ids and validation ids, both views of `ids`.
    """
    check_ids(ids, "train_val_split")
    check_type(val_share, Real, "train_val_split", "val_share")
    cut = len(ids) - math.ceil(len(ids) * val_share) if 0 < val_share < 1 else 0
    if cut < 1:
        raise ValueError(
            f"train_val_split: val_share = {shown(val_share)} of {len(ids)} ids, expected a share between "
            "0 and 1 that leaves at least one id to train on."
        )
    return ids[:cut], ids[cut:]


def get_batch(
    ids: Int[Tensor, " T_text"], block_size: int, batch_size: int, generator: torch.Generator | None = None
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Sample random blocks of a text, with the next token as the target at each position.

    Args:
        ids: shape (T_text,), on any device.
        block_size: T, the length of a block.
        batch_size: B, the number of blocks.
        generator: draws the starts, uniformly; a CPU generator, whatever the device of the ids.

    Returns:
        x and y, each (B, T), on the device of the ids. y[b, t] follows x[b, t] in the text.
    """
    check_ids(ids, "get_batch")
    check_sizes("get_batch", 1, block_size=block_size, batch_size=batch_size)
    check_generator(generator, "get_batch")
    if len(ids) <= block_size:
        raise ValueError(
            f"get_batch: {len(ids)} ids are too few for block_size = {block_size}: y is shifted by one, so "
            f"at least {block_size + 1} are needed. Use a longer text or a smaller block_size."
        )
    starts = torch.randint(len(ids) - block_size, (batch_size, 1), generator=generator)
    places = (starts + torch.arange(block_size)).to(ids.device)  # (B, T)
    return ids[places], ids[places + 1]


@dataclass(frozen=True, eq=False)
class Corpus:
    """Training and validation ids, each of shape (T,), and the tokenizer that encoded them."""

    train: Tensor
    val: Tensor
    tokenizer: CharTokenizer

    @classmethod
    def of(cls, text: str) -> "Corpus":
        """Tokenize a text by characters and split off its last tenth for validation."""
        tokenizer = CharTokenizer(text)
        return cls(*train_val_split(tokenizer.encode(text)), tokenizer)
