"""The other side of tests/device/run: the same measurements by PyTorch, one JSON line for each
that is asked for on standard input. Warm-ups, events and medians are as in the workers."""

import json
import statistics
import sys
import time

import torch

LEAST = 5


def spread(values):
    quarter = statistics.quantiles(values, n=4, method="inclusive")
    return (quarter[2] - quarter[0]) / statistics.median(values)


def repeat(once, seconds, throughout=False, warm_up=2):
    """Seconds of each run, until the middle half lies within 1 % or, throughout, the time is spent."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def timed():
        # The GPU waits while the calls are made: only its own time counts.
        torch.cuda._sleep(200_000)
        start.record()
        once()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    for _ in range(warm_up):
        timed()
    values, until = [], time.monotonic() + seconds
    while True:
        values.append(timed())
        agreed = not throughout and len(values) >= LEAST and spread(values) < 0.01
        if agreed or time.monotonic() >= until:
            return values


def gemm(size, dtype, seconds):
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}[dtype]
    a, b = (torch.randn(size, size, device="cuda", dtype=kind) for _ in range(2))
    out = torch.empty_like(a)
    return [2 * size**3 / t for t in repeat(lambda: torch.matmul(a, b, out=out), seconds, throughout=True)]


def hbm(size, seconds):
    a, b = (torch.full((size,), 90, dtype=torch.uint8, device="cuda") for _ in range(2))
    return [2 * size / t for t in repeat(lambda: b.copy_(a), seconds)]


def host_copy(size, direction, seconds):
    host, device = torch.zeros(size, dtype=torch.uint8).pin_memory(), torch.zeros(size, dtype=torch.uint8, device="cuda")
    to, source = (device, host) if direction == "host_to_device" else (host, device)
    return [size / t for t in repeat(lambda: to.copy_(source, non_blocking=True), seconds)]


def p2p(size, src, dst, seconds):
    a = torch.zeros(size, dtype=torch.uint8, device=f"cuda:{src}")
    b = torch.zeros(size, dtype=torch.uint8, device=f"cuda:{dst}")
    with torch.cuda.device(src):
        return [size / t for t in repeat(lambda: b.copy_(a, non_blocking=True), seconds)]


def load(size, seconds):
    """Keeps the first GPU busy beside what is measured, without a pause."""
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(20):
            torch.matmul(a, b)
        torch.cuda.synchronize()
    return [1.0]


KNOWN = {"gemm": gemm, "hbm": hbm, "host_copy": host_copy, "p2p": p2p, "load": load}

print(json.dumps({"torch": torch.__version__}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    name = asked.pop("measure")
    values = KNOWN[name](**asked)
    torch.cuda.empty_cache()
    print(json.dumps({"median": statistics.median(values), "count": len(values)}), flush=True)
