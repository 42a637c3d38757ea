"""Families of mathematics problems with whole-number answers.

Each family draws parameters, words them, computes the answer here by one way and states a
program that finds it by another; an arena ships only where the two agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

Parameters = dict[str, int]


@dataclass(frozen=True)
class Family:
    """One kind of problem; a drawn set of parameters makes it a problem."""

    name: str
    draw: Callable[[Random], Parameters]
    wordings: tuple[str, ...]
    """Templates of one question; each names every parameter."""
    answer: Callable[..., int]
    solution: str
    """Template of a program that prints the answer."""

    def question(self, rng: Random, parameters: Parameters) -> str:
        """The question in one of its wordings."""
        return rng.choice(self.wordings).format(**parameters)

    def solved(self, parameters: Parameters) -> int:
        """The answer, computed here."""
        return self.answer(**parameters)

    def program(self, parameters: Parameters) -> str:
        """The program that finds the answer another way."""
        return self.solution.format(**parameters)


def _multiples(n: int, a: int, b: int, c: int) -> int:
    """How many of 1..n are divisible by a or b, but not by c; by inclusion and exclusion."""

    def divisible(*factors: int) -> int:
        return n // math.lcm(*factors)

    either = divisible(a) + divisible(b) - divisible(a, b)
    barred = divisible(a, c) + divisible(b, c) - divisible(a, b, c)
    return either - barred


def _paths(m: int, n: int, a: int, b: int) -> int:
    """Monotone lattice paths to (m, n) that miss (a, b)."""
    through = math.comb(a + b, a) * math.comb(m - a + n - b, m - a)
    return math.comb(m + n, m) - through


def _recurrence(p: int, q: int, s: int, t: int, n: int, m: int) -> int:
    """Term n modulo m by powers of the companion matrix."""

    def times(x: list[list[int]], y: list[list[int]]) -> list[list[int]]:
        return [[sum(x[i][k] * y[k][j] for k in (0, 1)) % m for j in (0, 1)] for i in (0, 1)]

    power, base, left = [[1, 0], [0, 1]], [[p, q], [1, 0]], n - 1
    while left:
        if left & 1:
            power = times(power, base)
        base, left = times(base, base), left >> 1
    return (power[0][0] * t + power[0][1] * s) % m


def _divisor_sum(n: int) -> int:
    total, left, prime = 1, n, 2
    while left > 1:
        term = power = 1
        while left % prime == 0:
            left, power = left // prime, power * prime
            term += power
        total, prime = total * term, prime + 1
    return total


def _zeros(n: int, b: int) -> int:
    """Trailing zeros of n! in base b, by Legendre's formula."""
    least, left, prime = n, b, 2
    while left > 1:
        exponent = 0
        while left % prime == 0:
            left, exponent = left // prime, exponent + 1
        if exponent:
            found, power = 0, prime
            while power <= n:
                found, power = found + n // power, power * prime
            least = min(least, found // exponent)
        prime += 1
    return least


def _coins(n: int, a: int, b: int, c: int) -> int:
    return sum(1 for x in range(n // a + 1) for y in range((n - a * x) // b + 1)
               if (n - a * x - b * y) % c == 0)  # fmt: skip


def _gcd_sum(n: int) -> int:
    """Sum of gcd(k, n): over divisors d, d times how many k have it as gcd."""
    total = 0
    for d in range(1, n + 1):
        if n % d == 0:
            m = n // d
            total += d * sum(1 for k in range(1, m + 1) if math.gcd(k, m) == 1)
    return total


def _residues(n: int, m: int) -> int:
    """How many of 1..n have a square that leaves remainder 1 modulo m."""
    roots = [r for r in range(m) if r * r % m == 1]
    return sum((n - r) // m + 1 for r in roots if 0 < r <= n)


def _josephus(n: int, k: int) -> int:
    place = 0
    for size in range(2, n + 1):
        place = (place + k) % size
    return place + 1


def _digits(n: int, b: int) -> int:
    total = 0
    while n:
        n, digit = divmod(n, b)
        total += digit
    return total


def _primes(a: int, b: int) -> int:
    sieve = bytearray([1]) * (b + 1)
    for p in range(2, math.isqrt(b) + 1):
        if sieve[p]:
            sieve[p * p :: p] = bytes(len(range(p * p, b + 1, p)))
    return sum(n for n in range(max(2, a), b + 1) if sieve[n])


def _derangements(n: int, m: int) -> int:
    """Permutations of n things with exactly m in their place."""
    whole = sum((-1) ** k * math.comb(n - m, k) * math.factorial(n - m - k)
                for k in range(n - m + 1))  # fmt: skip
    return math.comb(n, m) * whole


def _ints(rng: Random, **ranges: tuple[int, int]) -> Parameters:
    return {name: rng.randint(*bounds) for name, bounds in ranges.items()}


def _draw_multiples(rng: Random) -> Parameters:
    a, b, c = rng.sample([3, 4, 5, 6, 7, 8, 9, 10, 11, 13], 3)
    return {"n": rng.randint(400, 5000), "a": a, "b": b, "c": c}


def _draw_paths(rng: Random) -> Parameters:
    m, n = rng.randint(6, 12), rng.randint(6, 12)
    return {"m": m, "n": n, "a": rng.randint(2, m - 2), "b": rng.randint(2, n - 2)}


def _draw_coins(rng: Random) -> Parameters:
    a, b, c = sorted(rng.sample([2, 3, 5, 7, 11, 13, 17], 3))
    return {"n": rng.randint(120, 500), "a": a, "b": b, "c": c}


FAMILIES: tuple[Family, ...] = (
    Family(
        "power_remainder",
        lambda r: _ints(r, a=(12, 99), b=(200, 9000), m=(1009, 99991)),
        ("What is the remainder when {a}^{b} is divided by {m}?",
         "Find {a} to the power {b}, modulo {m}."),
        lambda a, b, m: pow(a, b, m),
        "print({a} ** {b} % {m})",
    ),
    Family(
        "digit_sum",
        lambda r: _ints(r, a=(3, 60), b=(60, 400)),
        ("What is the sum of the decimal digits of {a}^{b}?",
         "Write out {a} to the power {b} and add up its digits; what do you get?"),
        lambda a, b: _digits(a**b, 10),
        "print(sum(map(int, str({a} ** {b}))))",
    ),
    Family(
        "multiples",
        _draw_multiples,
        ("How many whole numbers from 1 to {n} are divisible by {a} or by {b}, but not by {c}?",
         "Count the positive integers up to {n} that {a} or {b} divides and {c} does not."),
        _multiples,
        "print(sum(1 for k in range(1, {n} + 1) if (k % {a} == 0 or k % {b} == 0) and k % {c}))",
    ),
    Family(
        "divisor_sum",
        lambda r: _ints(r, n=(20_000, 400_000)),
        ("What is the sum of all positive divisors of {n}?",
         "Add up every positive whole number that divides {n}."),
        _divisor_sum,
        "print(sum(d for d in range(1, {n} + 1) if {n} % d == 0))",
    ),
    Family(
        "prime_sum",
        lambda r: (lambda a: {"a": a, "b": a + r.randint(200, 1500)})(r.randint(50, 4000)),
        ("What is the sum of the primes between {a} and {b}, both included where prime?",
         "Add all prime numbers p with {a} <= p <= {b}."),
        _primes,
        "def prime(n):\n    return all(n % d for d in range(2, int(n**0.5) + 1))\n"
        "print(sum(p for p in range({a}, {b} + 1) if prime(p)))",
    ),
    Family(
        "lattice_paths",
        _draw_paths,
        ("Moving one unit right or up at a time, how many paths lead from (0, 0) to ({m}, {n}) "
         "without passing through ({a}, {b})?",
         "How many shortest grid paths from (0, 0) to ({m}, {n}) avoid the point ({a}, {b})?"),
        _paths,
        "ways = {{}}\n"
        "for x in range({m} + 1):\n"
        "    for y in range({n} + 1):\n"
        "        start = 1 if x == y == 0 else ways.get((x - 1, y), 0) + ways.get((x, y - 1), 0)\n"
        "        ways[x, y] = 0 if (x, y) == ({a}, {b}) else start\n"
        "print(ways[{m}, {n}])",
    ),
    Family(
        "recurrence",
        lambda r: _ints(r, p=(2, 9), q=(2, 9), s=(1, 9), t=(1, 9), n=(300, 5000), m=(1009, 99991)),
        ("A sequence has x_0 = {s}, x_1 = {t} and x_k = {p} x_(k-1) + {q} x_(k-2). What is x_{n} "
         "modulo {m}?",
         "Let x_0 = {s}, x_1 = {t}; every later term is {p} times the last plus {q} times the one "
         "before. Which remainder does x_{n} leave on division by {m}?"),
        _recurrence,
        "x, y = {s}, {t}\nfor _ in range({n} - 1):\n    x, y = y, ({p} * y + {q} * x) % {m}\n"
        "print(y)",
    ),
    Family(
        "coin_ways",
        _draw_coins,
        ("In how many ways can {n} be paid with coins of {a}, {b} and {c}? Order does not matter.",
         "How many solutions in non-negative whole numbers has {a}x + {b}y + {c}z = {n}?"),
        _coins,
        "ways = [1] + [0] * {n}\nfor coin in ({a}, {b}, {c}):\n"
        "    for total in range(coin, {n} + 1):\n        ways[total] += ways[total - coin]\n"
        "print(ways[{n}])",
    ),
    Family(
        "factorial_zeros",
        lambda r: _ints(r, n=(150, 900), b=(6, 30)),
        ("With how many zeros does {n}! end when it is written in base {b}?",
         "How often can {n} factorial be divided by {b} without a remainder?"),
        _zeros,
        "import math\nleft, count = math.factorial({n}), 0\n"
        "while left % {b} == 0:\n    left, count = left // {b}, count + 1\nprint(count)",
    ),
    Family(
        "gcd_sum",
        lambda r: _ints(r, n=(300, 3000)),
        ("What is the sum of gcd(k, {n}) over all k from 1 to {n}?",
         "For k = 1, 2, ..., {n}, add up the greatest common divisors of k and {n}."),
        _gcd_sum,
        "import math\nprint(sum(math.gcd(k, {n}) for k in range(1, {n} + 1)))",
    ),
    Family(
        "square_residues",
        lambda r: _ints(r, n=(2000, 20_000), m=(12, 120)),
        ("For how many whole numbers k from 1 to {n} does k^2 leave remainder 1 modulo {m}?",
         "Count the k with 1 <= k <= {n} for which {m} divides k^2 - 1."),
        _residues,
        "print(sum(1 for k in range(1, {n} + 1) if (k * k - 1) % {m} == 0))",
    ),
    Family(
        "josephus",
        lambda r: _ints(r, n=(60, 900), k=(3, 17)),
        ("{n} people numbered from 1 stand in a circle. Counting on from 1, every {k}th person is "
         "sent away until one is left. Which number is that?",
         "Players 1 to {n} sit in a ring; number {k} leaves first, then again each {k}th of those "
         "left. Who stays last?"),
        _josephus,
        "ring, at = list(range(1, {n} + 1)), 0\nwhile len(ring) > 1:\n"
        "    at = (at + {k} - 1) % len(ring)\n    ring.pop(at)\nprint(ring[0])",
    ),
    Family(
        "base_digits",
        lambda r: _ints(r, n=(10**12, 10**15), b=(3, 16)),
        ("What is the sum of the digits of {n} written in base {b}?",
         "Convert {n} to base {b} and add its digits, each as a decimal number."),
        _digits,
        "n, total = {n}, 0\nwhile n:\n    total += n % {b}\n    n //= {b}\nprint(total)",
    ),
    Family(
        "fixed_points",
        lambda r: (lambda n: {"n": n, "m": r.randint(1, 3)})(r.randint(6, 8)),
        ("How many arrangements of {n} different books leave exactly {m} of them in place?",
         "Of the permutations of {n} things, how many have exactly {m} fixed points?"),
        _derangements,
        "from itertools import permutations\nplaces = range({n})\n"
        "print(sum(1 for p in permutations(places) if sum(map(int.__eq__, p, places)) == {m}))",
    ),
)  # fmt: skip
