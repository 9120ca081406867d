"""Seconds and memory of attention over T, with its table and without: `make bench-attention`.

Three ways to compute causal attention: `attention` with its table of T x T scores, `flash_attention` of the
package, and `F.scaled_dot_product_attention`. All take turns, so that other load affects all; a figure is the
median of the turns. Memory is the most that tensors took at one time, beside q, k and v. On a CPU
`MemoryMeter` counts it, which does not see what PyTorch's kernel uses inside; on a GPU the allocator does.
"""

import argparse
import statistics
import time
from collections import defaultdict

import torch
import torch.nn.functional as F
from bench_speedrun import machine

from attention_course.attention import attention, causal_mask
from attention_course.flash import MemoryMeter, flash_attention

LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
HEADS, HEAD_SIZE, TURNS = 4, 64, 3
TABLES = 6  # that exist at one time: scores, scaled and masked ones, weights, gradients
MOST = 4 * 2**30  # bytes; where they would need more, the tables are left out


def with_table(q, k, v):
    return attention(q, k, v, causal_mask(q.shape[-2], device=q.device))[0]


def in_blocks(q, k, v):
    return flash_attention(q, k, v, is_causal=True)


def by_pytorch(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


WAYS = {"table": with_table, "blocks": in_blocks, "PyTorch": by_pytorch}


def seconds(device, function):
    """Return the result of a function, and the seconds that it took."""
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    synchronize()
    start = time.perf_counter()
    result = function()
    synchronize()
    return result, time.perf_counter() - start


def peak_bytes(device, function):
    """Return the most memory that tensors took at one time while a function ran."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        return torch.cuda.max_memory_allocated() - before
    with MemoryMeter() as meter:
        function()
    return meter.peak


def measure(ways, device, inputs, turns):
    """Return for each way the median seconds forward and backward, and the peak of memory in bytes."""
    taken, peaks, direction = defaultdict(list), {}, torch.randn_like(inputs[0])
    for turn in range(turns + 1):
        for name, way in ways.items():
            if turn == 0:  # warms up
                peaks[name] = peak_bytes(
                    device, lambda way=way: torch.autograd.grad(way(*inputs), inputs, direction)
                )
                continue
            output, forward = seconds(device, lambda way=way: way(*inputs))
            _, backward = seconds(
                device, lambda output=output: torch.autograd.grad(output, inputs, direction)
            )
            taken[name].append((forward, backward))
    return {name: (*map(statistics.median, zip(*taken[name], strict=True)), peaks[name]) for name in ways}


def main():
    parser = argparse.ArgumentParser(
        description="Seconds and memory of attention, with and without its table."
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    options = parser.parse_args()
    device, dtype = "cuda" if torch.cuda.is_available() else "cpu", getattr(torch, options.dtype)
    torch.manual_seed(0)
    print(f"{machine(device)}\n{HEADS} heads of {HEAD_SIZE}, {options.dtype}, causal\n")
    print(f"{'T':>6}  {'way':8}{'forward s':>11}{'backward s':>12}{'peak MiB':>10}   seconds / PyTorch's")
    for T in options.lengths:
        shape = (1, HEADS, T, HEAD_SIZE)
        inputs = [torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]
        table = HEADS * T * T * dtype.itemsize
        fits = TABLES * table <= MOST
        ways = {name: way for name, way in WAYS.items() if fits or way is not with_table}
        found = measure(ways, device, inputs, TURNS)
        if not fits:
            print(f"{T:6}  table     left out: one table takes {table / 2**20:.0f} MiB")
        best = sum(found["PyTorch"][:2])
        for name, (forward, backward, peak) in found.items():
            ratio = (forward + backward) / best
            print(
                f"{T:6}  {name:8}{forward:11.4f}{backward:12.4f}{peak / 2**20:10.1f}{ratio:10.1f}", flush=True
            )


if __name__ == "__main__":
    main()
