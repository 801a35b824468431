"""Cost of a clip in BEATs, EAT and PANNs, and what lower precision changes.

``python benchmarks/backbones.py --device cuda`` with NumPy and torch, and ``src`` on PYTHONPATH.
Weights are random (seeded by their names), clips are float32 in main memory; the time is that of
``embed``: transfer, filter banks, network, and the embedding back in NumPy. Best of three.
"""

from __future__ import annotations

import argparse
import contextlib
import time
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import torch

from daco.backbones import beats, eat, panns
from daco.backbones.network import Network
from daco.compute.device import tf32

MODULES = {"beats": beats, "eat": eat, "panns": panns}
CHECKED = 8


def weights(name: str) -> dict[str, torch.Tensor]:
    """Random tensors that keep the signal at its size from layer to layer."""
    tensors = {}
    for key, shape in MODULES[name].expected_shapes().items():
        shared = beats.HEAD_BIAS.format(0) if "relative_attention_bias" in key else key
        z = np.random.default_rng(zlib.crc32(shared.encode())).standard_normal(
            shape, dtype=np.float32
        )
        last = key.rsplit(".", 1)[-1]
        if key == panns.MEL:
            value = np.abs(z)
        elif key == "bn0.running_mean":
            value = 20 + z
        elif key == "bn0.running_var":
            value = 100 + np.abs(z)
        elif last in ("bias", "running_mean"):
            value = 0.1 * z
        elif last == "running_var":
            value = 1 + 0.1 * np.abs(z)
        elif len(shape) == 1 or last in ("weight_g", "grep_a"):
            value = 1 + 0.1 * z
        elif "relative_attention_bias" in key or "extra_tokens" in key:
            value = z
        else:
            value = z * np.float32(1.4 / np.sqrt(np.prod(shape[1:])))
        tensors[key] = torch.from_numpy(np.asarray(value, np.float32))
    if name == "eat":
        tensors[eat.POSITIONS] = eat.positions()
    return tensors


def clips(count: int, seconds: float) -> np.ndarray:
    """Hums of six partials in noise."""
    rng = np.random.default_rng(0)
    time_axis = np.arange(round(seconds * 16_000), dtype=np.float32) / 16_000
    waves = 0.05 * rng.standard_normal((count, len(time_axis)), dtype=np.float32)
    for wave in waves:
        for hertz, level in zip(rng.uniform(60, 7000, 6), rng.uniform(0.01, 0.15, 6), strict=True):
            wave += level * np.sin(2 * np.pi * hertz * time_axis, dtype=np.float32)
    return waves


def best(function: Callable[[], object], synchronize: Callable[[], None], repeats: int) -> float:
    """Seconds of the fastest call, after two that warm up."""
    times = []
    for number in range(repeats + 2):
        synchronize()
        start = time.perf_counter()
        function()
        synchronize()
        if number >= 2:
            times.append(time.perf_counter() - start)
    return min(times)


def parts(net: Network, waveforms: np.ndarray) -> tuple[Callable[[], object], ...]:
    """The front end and the encoder alone, on what is already on the device."""
    x = torch.from_numpy(waveforms).to(net.device)
    with torch.inference_mode():
        features = net.features(x).to(net._dtype)

    def front() -> None:
        with torch.inference_mode(), tf32(x.device, False):
            net.features(x)

    def encoder() -> None:
        with torch.inference_mode(), tf32(x.device, net.precision == "tf32"):
            net.encoder(features)

    return front, encoder


@contextlib.contextmanager
def attention(kernel: str | None) -> Iterator[None]:
    """Restrict attention to one of torch's kernels."""
    if kernel is None:
        yield
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kinds = {
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "math": SDPBackend.MATH,
    }
    with sdpa_kernel(kinds[kernel]):
        yield


def profile(net: Network, waveforms: np.ndarray) -> None:
    """Print where the device spends its time."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as recorded

    kinds = [ProfilerActivity.CPU]
    if net.device.startswith("cuda"):
        kinds.append(ProfilerActivity.CUDA)
    with recorded(activities=kinds) as record:
        net.embed(waveforms)
    order = "self_cuda_time_total" if len(kinds) == 2 else "self_cpu_time_total"
    print(record.key_averages().table(sort_by=order, row_limit=14, max_name_column_width=60))


def numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def main() -> None:
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--networks", default="beats,eat,panns")
    parser.add_argument("--precisions", default="fp32,tf32,bf16" if cuda else "fp32,bf16")
    parser.add_argument("--batches", type=numbers, default=numbers("8,64,256" if cuda else "1,4"))
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="torch.compile the encoder")
    parser.add_argument("--attention", choices=("cudnn", "efficient", "math"))
    parser.add_argument("--cudnn-benchmark", action="store_true", help="let cuDNN try algorithms")
    parser.add_argument("--profile", action="store_true", help="kernels of the largest batch")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = options.cudnn_benchmark
    on_gpu = options.device.startswith("cuda")
    synchronize = torch.cuda.synchronize if on_gpu else (lambda: None)
    where = torch.cuda.get_device_name() if on_gpu else f"{torch.get_num_threads()} CPU threads"
    print(f"torch {torch.__version__}, {where}, clips of {options.seconds:g} s; ms per clip")
    waveforms = clips(max(*options.batches, CHECKED), options.seconds)
    print("network precision batch   embed front-end encoder   max abs     1-cos")
    for name in options.networks.split(","):
        tensors = weights(name)
        exact = MODULES[name].build(tensors, options.device, "fp32").embed(waveforms[:CHECKED])
        for precision in options.precisions.split(","):
            net = MODULES[name].build(tensors, options.device, precision)
            if options.compile:
                net.encoder.compile(dynamic=False)
            with attention(options.attention):
                ours = net.embed(waveforms[:CHECKED])
                lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(exact, axis=1)
                off = np.abs(ours - exact).max(), np.max(1 - np.sum(ours * exact, 1) / lengths)
                for batch in options.batches:
                    given = waveforms[:batch]
                    front, encoder = parts(net, given)
                    times = [
                        1e3 / batch * best(call, synchronize, options.repeats)
                        for call in (lambda net=net, given=given: net.embed(given), front, encoder)
                    ]
                    print(
                        f"{name:7} {precision:9} {batch:5} {times[0]:7.3f} {times[1]:9.3f} "
                        f"{times[2]:7.3f} {off[0]:9.1e} {off[1]:9.1e}",
                        flush=True,
                    )
                if options.profile:
                    profile(net, waveforms[: max(options.batches)])
            del net
            if on_gpu:
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
