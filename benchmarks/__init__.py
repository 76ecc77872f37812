"""Figures of envbundle, each measured beside its peer: ``python -m benchmarks --wheels DIR``.

One file per benchmark, each with ``run(place) -> list[Figure]``; a new one is also one line in ``__main__``.
Standard library only, but for what envbundle itself needs.
"""
