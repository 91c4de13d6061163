"""Counter-based random numbers as array arithmetic: Philox4x64-10, and the Box-Muller transform.

Word ``j`` of a path is word ``j % 4`` of the Philox block with counter ``(j // 4 + 1, path, stream, 0)``: the words of
``numpy.random.Philox``, which increments its counter before each block. The functions take unsigned 64-bit
integers, or signed ones that wrap (PyTorch has no complete unsigned ones).

The transform uses only sums, products, quotients and square roots, which IEEE 754 rounds uniquely: NumPy and
compiled code give the same bits. Its error is at most 1.3 units of double precision.

References
----------
1. J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", Proc. SC11,
   2011.
2. G. E. P. Box, M. E. Muller, "A note on the generation of random normal deviates", Ann. Math. Statist. 29, 1958.
"""

from __future__ import annotations

from typing import Any, Final

ROUNDS: Final = 10
MULTIPLIERS: Final = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
WEYL: Final = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
MASK32: Final = 0xFFFFFFFF

#: ``log f = 2 atanh s = 2 s + s^3 (2/3 + 2/5 s^2 + ...)`` with ``s = (f - 1) / (f + 1)``; to s^21 for |s| < 0.172.
ATANH: Final = tuple(2.0 / k for k in range(3, 22, 2))
#: ln 2 in two parts; the first has 21 trailing zero bits, so that its multiples by an exponent are exact.
LN2_HIGH: Final = 0.6931471803691238
LN2_LOW: Final = 1.9082149292705877e-10
ROOT_HALF: Final = 0.7071067811865476
TURN: Final = 6.283185307179586


def _reciprocal_factorials(first: int) -> tuple[float, ...]:
    """Coefficients of x^first, x^(first+2), ... in the series of sine or cosine, nine from the leading one on."""
    values, factorial = [], 1
    for k in range(1, first + 17):
        factorial *= k
        if k >= first and (k - first) % 2 == 0:
            values.append((1.0 if k // 2 % 2 == 0 else -1.0) / factorial)
    return tuple(values)


#: sin x = x + x^3 SINE[0] + ..., cos x = 1 + x^2 COSINE[0] + ..., for |x| <= pi/4.
SINE: Final = _reciprocal_factorials(3)
COSINE: Final = _reciprocal_factorials(2)


def _signed(value: int, signed: bool) -> int:
    """A 64-bit constant, as a negative number if the integers are signed."""
    return value - 2**64 if signed and value >= 2**63 else value


def join_key(words: Any) -> tuple[Any, Any]:
    """The two 64-bit words of a key from its four 32-bit ones, low ones first; ``words`` are 64-bit integers."""
    return words[0] | words[1] << 32, words[2] | words[3] << 32


def _multiply(constant: int, x: Any, signed: bool) -> tuple[Any, Any]:
    """High and low 64 bits of a product, by 32-bit parts."""
    low_c, high_c = constant & MASK32, constant >> 32
    low_x, high_x = x & MASK32, (x >> 32) & MASK32
    corner, one, two = low_c * low_x, low_c * high_x, high_c * low_x
    middle = ((corner >> 32) & MASK32) + (one & MASK32) + (two & MASK32)
    high = high_c * high_x + ((one >> 32) & MASK32) + ((two >> 32) & MASK32) + (middle >> 32)
    return high, _signed(constant, signed) * x


def philox_round(block: tuple[Any, ...], key: tuple[Any, Any], signed: bool) -> tuple[Any, ...]:
    """One round of a block of four words."""
    a, b, c, d = block
    high_a, low_a = _multiply(MULTIPLIERS[0], a, signed)
    high_c, low_c = _multiply(MULTIPLIERS[1], c, signed)
    return high_c ^ b ^ key[0], low_c, high_a ^ d ^ key[1], low_a


def next_key(key: tuple[Any, Any], signed: bool) -> tuple[Any, Any]:
    """The key of the next round; Python integers are reduced, arrays wrap."""
    first, second = (word + _signed(step, signed) for word, step in zip(key, WEYL, strict=True))
    if isinstance(first, int):
        return _signed(first % 2**64, signed), _signed(second % 2**64, signed)
    return first, second


def philox(counter: Any, path: Any, stream: Any, key: tuple[Any, Any], *, signed: bool = False) -> tuple[Any, ...]:
    """The four words of each block; ``counter``, ``path`` and ``stream`` broadcast.

    ``key`` has two 64-bit words: arrays that wrap, or Python integers.
    """
    block: tuple[Any, ...] = (counter, path, stream, 0)
    for number in range(ROUNDS):
        if number:
            key = next_key(key, signed)
        block = philox_round(block, key, signed)
    return block


def uniforms(words: Any, to_float: Any, single: bool = False) -> Any:
    """``(k + 1/2) 2^-b`` with the upper b bits k of each word: inside (0, 1), symmetric about 1/2, exact.

    In double precision b is 52, and 23 for numbers that ``single`` precision can hold.
    """
    bits = 23 if single else 52
    return (to_float((words >> (64 - bits)) & (2**bits - 1)) + 0.5) * 2.0**-bits


def normal_pairs(xp: Any, radii: Any, angles: Any, to_float: Any) -> tuple[Any, Any]:
    """Two independent standard normal numbers from each pair of words."""
    # The logarithm of u = (upper 53 bits + 1) 2^-53, in (0, 1].
    mantissa, exponent = xp.frexp(to_float(((radii >> 11) & (2**53 - 1)) + 1))
    below = mantissa < ROOT_HALF
    mantissa = xp.where(below, mantissa + mantissa, mantissa)
    power = to_float(exponent) - xp.where(below, 54.0, 53.0)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    total = ATANH[-1] * square
    for coefficient in ATANH[-2:0:-1]:
        total = (total + coefficient) * square
    total = (total + ATANH[0]) * square * s
    log = power * LN2_HIGH + (s + s + (total + power * LN2_LOW))
    radius = xp.sqrt(-2.0 * log)
    # Turns in [0, 1), reduced to within an eighth of the nearest quarter; both steps are exact.
    turns = to_float((angles >> 11) & (2**53 - 1)) * 2.0**-53
    quarter = xp.floor(4.0 * turns + 0.5)
    x = (turns - 0.25 * quarter) * TURN
    square = x * x
    sine, cosine = SINE[-1] * square, COSINE[-1] * square
    for coefficient in SINE[-2:0:-1]:
        sine = (sine + coefficient) * square
    for coefficient in COSINE[-2:0:-1]:
        cosine = (cosine + coefficient) * square
    sine = x + (sine + SINE[0]) * square * x
    cosine = 1.0 + (cosine + COSINE[0]) * square
    odd = (quarter == 1.0) | (quarter == 3.0)
    first, second = xp.where(odd, sine, cosine), xp.where(odd, cosine, sine)
    first = xp.where((quarter == 1.0) | (quarter == 2.0), -first, first)
    second = xp.where((quarter == 2.0) | (quarter == 3.0), -second, second)
    return radius * first, radius * second


def write_numbers(xp: Any, words: Any, kind: str, single: bool, to_float: Any, out: Any) -> None:
    """Convert rows of an even number of words to numbers in ``out``, which may be one shorter."""
    n = out.shape[-1]
    if kind == "normal":
        first, second = normal_pairs(xp, words[:, ::2], words[:, 1::2], to_float)
        out[:, ::2] = first
        out[:, 1::2] = second[:, : n // 2]
    else:
        out[...] = uniforms(words[:, :n], to_float, single)
