"""Runs the source of a CUDA kernel on the host: its text as it is, compiled by the C++ compiler that is there.

Threads of a block are fibres that change places at barriers, in a random order each time; blocks run one by one,
in an order drawn as well. That shows what is wrong in indices, conditions and barriers; not races between blocks.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

COMPILER = shutil.which("g++") or shutil.which("clang++")

_SHIM = r"""
#include <ucontext.h>
#include <cstring>
#include <random>
#include <vector>
#include <algorithm>
#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
struct Index { unsigned x; };
Index threadIdx, blockIdx, blockDim, gridDim;
static std::mt19937 draw(0);
static ucontext_t scheduler;
struct Fibre { ucontext_t context; std::vector<char> stack; bool done; };
static std::vector<Fibre> fibres;
static unsigned running;
static int votes, verdict;
static int __syncthreads_or(int vote) {
    votes |= vote != 0;
    swapcontext(&fibres[running].context, &scheduler);
    return verdict;
}
static void __syncthreads() { __syncthreads_or(0); }
static void __threadfence() {}
static int atomicExch(int* p, int value) { int before = *p; *p = value; return before; }
static unsigned long long atomicAdd(unsigned long long* p, unsigned long long value) {
    unsigned long long before = *p; *p += value; return before;
}
static float __int_as_float(int bits) { float value; std::memcpy(&value, &bits, 4); return value; }
static double __longlong_as_double(long long bits) { double value; std::memcpy(&value, &bits, 8); return value; }
static void (*body)();
static void begin() {
    body();
    fibres[running].done = true;
    swapcontext(&fibres[running].context, &scheduler);
}
// Whether every block's threads met at the same barriers.
static int launch_grid(unsigned blocks, unsigned threads, void (*kernel)()) {
    body = kernel;
    gridDim.x = blocks; blockDim.x = threads;
    std::vector<unsigned> order(blocks), turns(threads);
    for (unsigned i = 0; i < blocks; ++i) order[i] = i;
    for (unsigned i = 0; i < threads; ++i) turns[i] = i;
    std::shuffle(order.begin(), order.end(), draw);
    fibres.resize(threads);
    for (unsigned block : order) {
        blockIdx.x = block;
        for (Fibre& fibre : fibres) {
            fibre.stack.resize(1 << 15);
            fibre.done = false;
            getcontext(&fibre.context);
            fibre.context.uc_stack.ss_sp = fibre.stack.data();
            fibre.context.uc_stack.ss_size = fibre.stack.size();
            fibre.context.uc_link = nullptr;
            makecontext(&fibre.context, begin, 0);
        }
        for (bool going = true; going;) {
            std::shuffle(turns.begin(), turns.end(), draw);
            votes = 0;
            unsigned ended = 0;
            for (unsigned thread : turns) {
                running = threadIdx.x = thread;
                swapcontext(&scheduler, &fibres[thread].context);
                ended += fibres[thread].done;
            }
            verdict = votes;
            if (ended && ended < threads) return 1;
            going = !ended;
        }
    }
    return 0;
}
"""


def compile_kernels(
    sources: Mapping[str, str], kernel: str, parameters: str, folder: Path
) -> dict[str, Callable[..., None]]:
    """Callables ``run(blocks, threads, *arguments)`` for several sources of one kernel, by their names.

    ``parameters`` lists the C types of the kernel's parameters, with ``REAL`` where the source says so; arrays are
    given as NumPy's.
    """
    types = [part.strip() for part in parameters.split(",")]
    text = [_SHIM]
    for name, source in sources.items():
        fields = " ".join(f"{kind} p{place};" for place, kind in enumerate(types))
        given = ", ".join(f"{kind} p{place}" for place, kind in enumerate(types))
        passed = ", ".join(f"p{place}" for place in range(len(types)))
        kept = ", ".join(f"held.p{place}" for place in range(len(types)))
        text += [
            f"namespace {name} {{",
            source.replace('extern "C"', ""),
            f"struct {{ {fields} }} held;",
            f"static void body() {{ {kernel}({kept}); }}",
            f'extern "C" int run_{name}(unsigned blocks, unsigned threads, {given}) {{',
            f"held = {{{passed}}}; return launch_grid(blocks, threads, body); }}",
            "}",
            *(f"#undef {word}" for word in re.findall(r"^#define (\w+)", source, re.MULTILINE)),
        ]
    code, library = folder / "kernels.cpp", folder / "kernels.so"
    code.write_text("\n".join(text), encoding="utf-8")
    flags = ["-std=c++17", "-O1", "-fPIC", "-shared", "-Wno-unknown-pragmas"]
    subprocess.run([str(COMPILER), *flags, str(code), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    return {name: _caller(getattr(loaded, f"run_{name}")) for name in sources}


def _caller(function: Any) -> Callable[..., None]:
    def run(blocks: int, threads: int, *arguments: Any) -> None:
        status = function(ctypes.c_uint(blocks), ctypes.c_uint(threads), *map(_passed, arguments))
        assert status == 0, "some threads of a block ended while others waited at a barrier"

    return run


def _passed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        assert value.flags.c_contiguous
        return ctypes.c_void_p(value.ctypes.data)
    return ctypes.c_int(int(value)) if isinstance(value, np.int32) else ctypes.c_longlong(int(value))
