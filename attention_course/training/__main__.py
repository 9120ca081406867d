"""The command line: `python -m attention_course.training`."""

import argparse
import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist

from attention_course.gpt import GPT, GPTConfig, generate
from attention_course.stories import answers, recall
from attention_course.text import Data, conditional_entropy, load_text
from attention_course.training.loop import Trainer, run
from attention_course.training.recipe import RECIPES, SIZES

INTEGERS = ("steps", "batch_size", "evaluate_every", "seed")
CHANGES = {**dict.fromkeys(INTEGERS, int), "learning_rate": float, "precision": str}  # of the recipe


def arguments() -> argparse.ArgumentParser:
    """Return what the command line takes."""
    parser = argparse.ArgumentParser(
        prog="python -m attention_course.training",
        usage="%(prog)s [options]",
        description="Train a GPT on a text. Print its loss beside that of tables that count what follows.",
        epilog="torchrun --nproc-per-node=2 -m attention_course.training [options] lets two processes share "
        "each batch. Ctrl-C ends the training; with --checkpoint, the same command goes on later.",
    )
    parser.add_argument("--text", default="stories", help="stories, tiny-shakespeare, or a UTF-8 file")
    parser.add_argument("--config", default="stories", choices=SIZES, help="size of the model, and recipe")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=device, help="cpu, cuda or cuda:1")
    parser.add_argument("--checkpoint", type=Path, help="go on from this file if it is there; save to it")
    parser.add_argument("--sample", type=length, default=200, help="characters to write at the end")
    for name, kind in CHANGES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help="in place of the recipe's")
    return parser


def length(argument: str) -> int:
    """Turn an argument into the length of a text."""
    if (characters := int(argument)) < 0:
        raise argparse.ArgumentTypeError(f"{characters} characters, expected at least 0")
    return characters


def train_from_options(options: argparse.Namespace) -> bool:
    """Train on `options.text` and print a table. Return whether the training came to its end."""
    given = {name: getattr(options, name) for name in CHANGES if getattr(options, name) is not None}
    recipe = replace(RECIPES[options.config], **given)
    data = Data.of(shared_text(options.text))
    torch.manual_seed(recipe.seed)
    model = GPT(GPTConfig(vocab_size=data.tokenizer.vocab_size, **SIZES[options.config]))
    trainer = Trainer(on_device(model, options.device), data, recipe)
    first, checkpoint = trainer.rank == 0, options.checkpoint
    saving = trainer.saving(checkpoint) if checkpoint and first else contextlib.nullcontext(lambda: None)

    def report(trainer: Trainer) -> None:
        if first and trainer.history.val_steps[-1:] == [trainer.steps_done]:
            print_progress(trainer)
            save()

    with saving as save:
        if checkpoint and trainer.mean(float(checkpoint.exists())) > 0:  # on any machine; then each needs it
            trainer.load(checkpoint)
        save()  # now already: a bad path must not cost a whole training
        stopped = run(trainer, callback=report).stopped
        if stopped:
            save()
    if first and stopped:
        print(f"Stopped after step {trainer.steps_done} of {recipe.steps}.")
        if checkpoint:
            print(f"The same command goes on from there, with {checkpoint}.")
    elif first:
        print_table(model, trainer)
        prompt = data.val[None, :1].to(trainer.device)
        print(printable(data.tokenizer.decode(generate(model, prompt, options.sample)[0])))
    return not stopped


def printable(text: str) -> str:
    r"""Write control characters, which could drive a terminal, as \x1b; line ends and tabs stay."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda found: f"\\x{ord(found[0]):02x}", text)


def shared_text(name_or_path: str) -> str:
    """Load a text. Of the processes on one machine one comes first, and downloads it if need be."""
    if not dist.is_initialized():
        return load_text(name_or_path)
    try:
        if os.environ["LOCAL_RANK"] == "0":
            return load_text(name_or_path)
    finally:
        dist.barrier()
    return load_text(name_or_path)


def on_device(model: GPT, name: str) -> GPT:
    """Move the model; ValueError if this machine has no such device."""
    try:
        torch.zeros((), device=name).item()  # on "meta" there are no numbers
        return model.to(name)
    except (RuntimeError, AssertionError, ImportError) as error:
        found = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        raise ValueError(f"--device {name} cannot be used. This machine has: {', '.join(found)}.") from error


def print_progress(trainer: Trainer) -> None:
    """Print one line about the training so far."""
    steps, seconds = trainer.steps_done, trainer.seconds
    tokens = steps * trainer.recipe.batch_size * trainer.block_size
    print(
        f"step {steps:5} of {trainer.recipe.steps}   validation loss {trainer.history.val_losses[-1]:.3f}"
        f"   {seconds:6.1f} s   {steps / seconds:6.1f} steps/s   {tokens / seconds:9.0f} tokens/s",
        flush=True,
    )


def print_table(model: GPT, trainer: Trainer) -> None:
    """Print what tables of n-grams, counted in the validation text, and the trained model reach on it."""
    data, precision = trainer.data, trainer.recipe.precision
    rows = [(f"best {n}-gram table, counted", "", conditional_entropy(data.val, n), "") for n in (1, 2, 3)]
    text = data.tokenizer.decode(data.val)
    asked = any(end > model.block_size for _, end in answers(text))
    right = f"{recall(model, text, data.tokenizer, precision):.2f}" if asked else ""
    size = f"{sum(p.numel() for p in model.parameters()):,}"
    rows.append((f"GPT, {model.config.n_layer} layers", size, trainer.history.val_losses[-1], right))
    print(f"\n{'model':28}{'parameters':>12}{'validation loss':>17}{'recall':>8}")
    for name, parameters, loss, right in rows:
        print(f"{name:28}{parameters:>12}{loss:17.3f}{right:>8}")
    print()


@contextlib.contextmanager
def process_group(options: argparse.Namespace) -> Iterator[None]:
    """Join the other processes that torchrun started, if it did; each gets a GPU of its own.

    Raises:
        ValueError: there are fewer GPUs than processes.
    """
    if "RANK" not in os.environ:
        yield
        return
    if options.device == "cuda":
        local, found = os.environ["LOCAL_RANK"], torch.cuda.device_count()
        if int(local) >= found:
            raise ValueError(
                f"Process {local}, counted from 0, has no GPU of its own: this machine has {found}. "
                "Start no more processes than that (--nproc-per-node), or choose --device cpu."
            )
        options.device = f"cuda:{local}"
        torch.cuda.set_device(options.device)
    dist.init_process_group("nccl" if options.device.startswith("cuda") else "gloo")
    try:
        yield
        dist.barrier()  # a process that leaves while another still sends would tear its threads down
    finally:
        dist.destroy_process_group()


def main(argv: list[str] | None = None) -> None:
    """Run the command line.

    Exits with 2 if it was given options that do not exist, with 1 if they do not work, and with 130, which is
    128 + SIGINT, after Ctrl-C.
    """
    options = arguments().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a sample may hold what it cannot encode
    try:
        with process_group(options):
            finished = train_from_options(options)
    except (ValueError, OSError, FloatingPointError, MemoryError) as error:
        sys.exit(f"training: {error}")
    except KeyboardInterrupt:
        finished = False
    if not finished:
        sys.exit(130)


if __name__ == "__main__":
    main()
