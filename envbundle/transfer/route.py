"""``route``: which ways there are between two locations, how fast they are, and which one ``copy`` takes.

* Each way is tried in its own direction, with a time-out: that A reaches B says nothing about B and A.
* Between two other hosts it is asked whether the one logs in to the other by itself, with its own keys; this
  machine's agent is not lent to it. The command that runs there is made of checked characters alone.
* The rate is that of a few MiB of random bytes through a far end; one connection, as a copy has it.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envbundle.errors import EnvbundleError
from envbundle.host.run import run

from .ssh import SshConnection, is_plain_address, parse_ssh

if TYPE_CHECKING:
    from .location import Location
    from .options import TransferOptions
    from .ssh import SshAddress

HERE = "here"
BURST = 4 * 1024 * 1024
LONGEST = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One way: ``seconds`` until it answered; ``rate`` in bytes a second, None where not measured."""

    start: str
    end: str
    reachable: bool
    seconds: float
    rate: float | None = None
    found: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; the rate in whole bytes a second."""
        return {
            "from": self.start,
            "to": self.end,
            "reachable": self.reachable,
            "seconds": round(self.seconds, 3),
            "rate": None if self.rate is None else int(self.rate),
            "found": self.found,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What was found. ``via`` is the way that ``copy`` takes, '' where there is none; ``why`` says why."""

    legs: tuple[Leg, ...]
    via: str
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON answer."""
        return {"via": self.via, "why": self.why, "legs": [leg.to_dict() for leg in self.legs]}


def find_route(source: Location, destination: Location, via: str, options: TransferOptions) -> Route:
    """Try every way between two locations; ``via`` is the word of ``copy`` for them."""
    ends = [parse_ssh(where.path) if where.kind == "ssh" else None for where in (source, destination)]
    tries = [(_to_host, (end, options, down)) for end, down in zip(ends, (True, False), strict=True) if end]
    if ends[0] and ends[1]:
        tries += [(_between, (ends[0], ends[1], options)), (_between, (ends[1], ends[0], options))]  # type: ignore[list-item]
    with ThreadPoolExecutor(max(1, len(tries))) as pool:
        legs = tuple(pool.map(lambda one: one[0](*one[1]), tries))
    lost = [leg for leg in legs if HERE in (leg.start, leg.end) and not leg.reachable]
    if lost:
        return Route(legs=legs, via="", why=_why_not(lost, legs))
    return Route(legs=legs, via=via, why=_why(via, legs))


def _why(via: str, legs: tuple[Leg, ...]) -> str:
    if via != "relay":
        return "one end is here, or is a server that needs no other way"
    between = [leg for leg in legs if HERE not in (leg.start, leg.end)]
    there = [leg for leg in between if leg.reachable]
    if not there:
        return "neither host logs in to the other: bytes pass through this machine's memory"
    known = ", ".join(f"{leg.start} logs in to {leg.end}" for leg in there)
    return f"{known}, but a copy passes through this machine's memory, which checks each blob on the way"


def _why_not(lost: list[Leg], legs: tuple[Leg, ...]) -> str:
    text = "; ".join(f"{leg.start if leg.end == HERE else leg.end}: {leg.found}" for leg in lost)
    names = {leg.start if leg.end == HERE else leg.end for leg in lost}
    jump = [leg for leg in legs if leg.end in names and leg.reachable]
    if jump:
        text += f"; {jump[0].start} reaches {jump[0].end}: name it as ProxyJump in your ssh configuration"
    return text


def _to_host(address: SshAddress, options: TransferOptions, down: bool) -> Leg:
    """Try the way between here and a host: ``down`` measures from there to here."""
    machine = address.machine
    start, end = (machine, HERE) if down else (HERE, machine)
    connection = SshConnection(address, options)
    began = time.monotonic()
    try:
        channel = connection.channel(0)
        seconds = time.monotonic() - began
        try:
            began = time.monotonic()
            if down:
                channel.call("burst", size=BURST)
            else:
                channel.call("burst", bytes(BURST), size=0)
            rate = BURST / max(time.monotonic() - began, 1e-6)
        finally:
            channel.close()
    except EnvbundleError as fault:
        spent = time.monotonic() - began
        return Leg(start=start, end=end, reachable=False, seconds=spent, found=f"{fault.code}: {fault.found}")
    finally:
        connection.close()
    return Leg(start=start, end=end, reachable=True, seconds=seconds, rate=rate)


def _between(first: SshAddress, second: SshAddress, options: TransferOptions) -> Leg:
    """Ask whether ``first`` logs in to ``second`` by itself."""
    began = time.monotonic()
    found = ""
    try:
        told = run([*options.ssh, "-G", *second.words], timeout=LONGEST).text
        said = dict(re.findall(r"^(hostname|user|port) (\S+)$", told, re.MULTILINE))
        if not is_plain_address(said.get("user", ""), said.get("hostname", ""), said.get("port", "")):
            found = "its address has characters that no remote command may hold"
        else:
            asked = (
                "ssh -a -x -o BatchMode=yes -o ConnectTimeout=5 "
                f"-p {said['port']} -- {said['user']}@{said['hostname']} true"
            )
            words = [*options.ssh, "-T", "-a", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]
            done = run([*words, *first.words, asked], timeout=LONGEST)
            if done.status:
                lines = [line for line in done.error_text.splitlines() if line.strip()]
                found = "".join(c for c in (lines or [f"status {done.status}"])[-1] if c.isprintable())[:200]
    except EnvbundleError as fault:
        found = f"{fault.code}: {fault.found or fault.expected}"
    return Leg(
        start=first.machine,
        end=second.machine,
        reachable=not found,
        seconds=time.monotonic() - began,
        found=found,
    )
