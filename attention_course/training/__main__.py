"""The command line: `python -m attention_course.training`."""

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from filelock import FileLock, Timeout

from attention_course.files import printable
from attention_course.gpt import GPT, GPTConfig, generate
from attention_course.stories import answer_accuracy, answers
from attention_course.text import Corpus, conditional_entropy, load_text
from attention_course.training.loop import Trainer, run
from attention_course.training.recipe import MODEL_CONFIGS, RECIPES

INTEGERS = ("steps", "batch_size", "evaluate_every", "seed")
OVERRIDES = {**dict.fromkeys(INTEGERS, int), "learning_rate": float, "precision": str}  # of the recipe


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m attention_course.training",
        usage="%(prog)s [options]",
        description="Train a GPT on a text. Print its loss beside that of n-gram tables.",
        epilog="torchrun --nproc-per-node=2 -m attention_course.training [options] splits each batch between "
        "two processes. Ctrl-C stops the training; with --checkpoint, the same command resumes it.",
    )
    parser.add_argument("--text", default="stories", help="stories, tiny-shakespeare, or a UTF-8 file")
    parser.add_argument("--config", default="stories", choices=MODEL_CONFIGS, help="model size and recipe")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=device, help="cpu, cuda or cuda:1")
    parser.add_argument("--checkpoint", type=Path, help="resume from this file if it exists; save to it")
    parser.add_argument("--sample", type=length, default=200, help="characters to sample at the end")
    for name, kind in OVERRIDES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help="overrides the recipe")
    return parser


def length(argument: str) -> int:
    """Parse the length of a sample."""
    if (characters := int(argument)) < 0:
        raise argparse.ArgumentTypeError(f"{characters} characters, expected at least 0")
    return characters


def train_from_options(options: argparse.Namespace) -> bool:
    """Train on `options.text` and print a table. Return whether the training finished."""
    given = {name: getattr(options, name) for name in OVERRIDES if getattr(options, name) is not None}
    recipe = replace(RECIPES[options.config], **given)
    data = Corpus.of(load_text(options.text))
    torch.manual_seed(recipe.seed)
    model = GPT(GPTConfig(vocab_size=data.tokenizer.vocab_size, **MODEL_CONFIGS[options.config]))
    trainer = Trainer(model.to(device_called(options.device)), data, recipe)
    first, checkpoint = trainer.rank == 0, options.checkpoint

    def save() -> None:
        if first and checkpoint:
            trainer.save(checkpoint)

    def report(trainer: Trainer) -> None:
        if trainer.history.val_steps[-1:] == [trainer.steps_done]:
            if first:
                print_progress(trainer)
            save()

    # If any rank has the file, all must load it.
    if checkpoint and trainer.mean(float(os.path.isfile(checkpoint))) > 0:
        trainer.load(checkpoint)
    save()  # fail now, not after training, if the path is bad
    if run(trainer, callback=report).stopped:
        save()
        if first:
            print(f"Stopped after step {trainer.steps_done} of {recipe.steps}.")
            if checkpoint:
                print(printable(f"The same command resumes it from {checkpoint}."))
        return False
    if first:
        print_table(model, trainer)
        prompt = data.val[None, :1].to(trainer.device)
        text = data.tokenizer.decode(generate(model, prompt, options.sample)[0])
        print(printable(text, keep="\n\t"))
    return True


def device_called(name: str) -> torch.device:
    """Return a device; ValueError if this machine has none of this name."""
    try:
        torch.zeros((), device=name).item()  # fails on "meta"
        return torch.device(name)
    except (RuntimeError, AssertionError, ImportError) as error:
        found = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        raise ValueError(f"--device {name} cannot be used. This machine has: {', '.join(found)}.") from error


def print_progress(trainer: Trainer) -> None:
    """Print one line of progress."""
    steps, seconds = trainer.steps_done, trainer.seconds
    tokens = steps * trainer.recipe.batch_size * trainer.block_size
    print(
        f"step {steps:5} of {trainer.recipe.steps}   validation loss {trainer.history.val_losses[-1]:.3f}"
        f"   {seconds:6.1f} s   {steps / seconds:6.1f} steps/s   {tokens / seconds:9.0f} tokens/s",
        flush=True,
    )


def print_table(model: GPT, trainer: Trainer) -> None:
    """Print the losses of n-gram tables counted in the validation text, and what the model reaches on it."""
    data, precision = trainer.data, trainer.recipe.precision
    rows = [(f"best {n}-gram table, counted", "", conditional_entropy(data.val, n), "") for n in (1, 2, 3)]
    text = data.tokenizer.decode(data.val)
    has_answers = any(end > model.block_size for _, end in answers(text))
    answered = f"{answer_accuracy(model, text, data.tokenizer, precision):.2f}" if has_answers else ""
    size = f"{sum(p.numel() for p in model.parameters()):,}"
    rows.append((f"GPT, {model.config.n_layer} layers", size, trainer.history.val_losses[-1], answered))
    print(f"\n{'model':28}{'parameters':>12}{'validation loss':>17}{'answers':>9}")
    for name, parameters, loss, answered in rows:
        print(f"{name:28}{parameters:>12}{loss:17.3f}{answered:>9}")
    print()


@contextlib.contextmanager
def process_group(options: argparse.Namespace) -> Iterator[None]:
    """Join the process group if torchrun started this process; on CUDA each process gets its own GPU."""
    if "RANK" not in os.environ:
        yield
        return
    if options.device == "cuda":
        options.device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
        torch.cuda.set_device(device_called(options.device))
    try:
        dist.init_process_group("nccl" if options.device.startswith("cuda") else "gloo")
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"RANK = {os.environ['RANK']!r} is in the environment, where torchrun puts it, and this process "
            f"finds no others: {error}. Start it with torchrun; for one process, unset RANK."
        ) from error
    try:
        yield
        dist.barrier()  # leaving while another process still sends would tear down its threads
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def alone(checkpoint: Path | None) -> Iterator[None]:
    """Let no other training write this checkpoint meanwhile; ValueError if one does already."""
    with contextlib.ExitStack() as stack:
        if checkpoint and checkpoint.name and os.access(checkpoint.parent, os.W_OK):  # else, saving tells it
            try:
                lock = FileLock(checkpoint.with_name(f".{checkpoint.name}.lock"), timeout=0)
                stack.enter_context(lock)
            except Timeout as error:
                raise ValueError(
                    f"another training writes {checkpoint}. Wait for it, or give another --checkpoint. "
                    f"If there is none, delete {error.lock_file}."
                ) from error
            except OSError:  # a name that is too long: saving tells that, too
                pass
        yield


def main(argv: list[str] | None = None) -> None:
    """Run the command line.

    Exit codes: 2 for unknown options, 1 for an error, 130 (128 + SIGINT) after Ctrl-C.
    """
    options = arguments().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for characters that it cannot encode
    try:
        first = os.environ.get("RANK", "0") == "0"  # of the processes of torchrun
        with alone(options.checkpoint if first else None), process_group(options):
            finished = train_from_options(options)
    except (ValueError, OSError, FloatingPointError, MemoryError) as error:
        sys.exit(printable(f"training: {error}", keep="\n"))
    except KeyboardInterrupt:
        finished = False
    if not finished:
        sys.exit(130)


if __name__ == "__main__":
    main()
