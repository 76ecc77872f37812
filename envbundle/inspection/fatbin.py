"""Fatbin containers: a 16-byte header, then entries back to back, one container per translation unit.

Rules (measured, little-endian throughout):

* Container: magic 0xBA55ED50, u16 version 1, u16 header size 16, u64 bytes that follow. 0 bytes is legal.
* Entry: u16 kind (1 PTX, 2 SASS, 8 NVVM), u16 0x0101, u32 header size (>= 64, multiple of 8), u64 stored
  payload size, u32 compressed size, ..., u16 minor and u16 major version (of PTX: its ISA), u32
  architecture, ..., u64 flags, u64, u64 uncompressed size.
* Flags: 0x2000 raw LZ4 block, 0x8000 zstd frame, 0x100000 architecture-specific ('a'), 0x200000
  family-specific ('f'). So the header alone says what an entry is for.
* No number from a header is believed further than the bytes reach. A fault is kept with its offset, what
  was read before it stays, and the walk always moves forward.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from envbundle.spec.coverage import Image

from .cubin import has_kernels, kernel_names, names_code, open_cubin
from .elf import ElfError
from .payload import CodecMissingError, lz4_block, zstd_frame
from .ptx import entry_names, has_entry

if TYPE_CHECKING:
    from envbundle.spec.coverage import EntryKind, State

    from .source import Source

PATTERN = bytes.fromhex("50ed55ba01001000")
HEADER_SIZE = 16
KINDS: dict[int, EntryKind] = {1: "ptx", 2: "sass", 8: "nvvm"}
LZ4, ZSTD, SPECIFIC, FAMILY = 0x2000, 0x8000, 0x100000, 0x200000
SURE_SIZE = 1 << 16  # an image of this many bytes has code; a smaller one is opened to see
NAMES_SIZE = 1 << 26  # an image above this is not opened for the names of its kernels
_BEGINNING = 1 << 14
_EMPTY_OLD, _EMPTY_NEW = 1900, 2400  # sizes up to which a cubin has no code, where it cannot be opened
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")


@dataclass(frozen=True, slots=True)
class Fault:
    """Damage: what was expected at an absolute offset, and what stands there."""

    offset: int
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class Module:
    """One container, or a bare cubin. ``end`` is where reading stopped, ``claimed_end`` what it claims."""

    offset: int
    end: int
    claimed_end: int
    images: tuple[Image, ...]
    state: State
    fault: Fault | None = None
    kernels: tuple[str, ...] = ()
    maybe_empty: bool = False
    bare: bool = False


@dataclass(frozen=True, slots=True)
class _Entry:
    kind: EntryKind
    target: str
    payload: int
    stored: int
    packed: int
    plain: int
    flags: int


def read_container(source: Source, offset: int, limit: int, *, names: bool = False) -> Module:
    """Walk the container whose header stands at ``offset``; nothing behind ``limit`` belongs to it.

    The images are those of all entries with a sound header. With ``names`` the kernels are named.
    """
    size = int.from_bytes(source.read(offset + 8, 8), "little")
    at, claimed = offset + HEADER_SIZE, offset + HEADER_SIZE + size
    end = min(claimed, limit)
    fault = None
    if claimed > limit:
        fault = Fault(offset + 8, f"a container of at most {max(limit - at, 0)} bytes", f"{size} bytes")
    images: list[Image] = []
    look = _Look(source, names=names)
    strange: Fault | None = None
    while at < end:
        data = source.read(at, min(_ENTRY.size, end - at))
        if not any(data[:4]) and _zero(source, at, end):
            break
        if len(data) < _ENTRY.size:
            fault = fault or Fault(at, "an entry header of 64 bytes", f"{len(data)} bytes")
            break
        row = _ENTRY.unpack(data)
        head, stored, arch, flags = row[2], row[3], row[8], row[11]
        if row[1] != 0x0101 or head < _ENTRY.size or head % 8 or at + head > end:
            fault = fault or Fault(at, "an entry header", data[:16].hex(" "))
            break
        kind = KINDS.get(row[0])
        if kind is None or not 10 <= arch < 10000:
            found = f"kind {row[0]}, architecture {arch}"
            strange = strange or Fault(at, "an entry of kind 1, 2 or 8 for a known architecture", found)
        else:
            images.append(_image(kind, arch, flags & (SPECIFIC | FAMILY), row[7], row[6]))
        payload = at + head
        if stored == 0:
            fault = fault or Fault(at + 8, "a payload", "0 bytes")
        if payload + stored > end:
            fault = fault or Fault(at + 8, f"a payload of at most {end - payload} bytes", f"{stored} bytes")
            break
        if kind is not None and stored:
            broken = look.at(_Entry(kind, str(arch), payload, stored, row[4], row[13], flags))
            fault = fault or broken
        at = payload + stored
    state: State = "damaged" if fault else "unread" if strange else look.state
    return Module(
        offset=offset,
        end=at if fault else end,
        claimed_end=claimed,
        images=_alike(tuple(images)),
        state=state,
        fault=fault or strange,
        kernels=look.names,
        maybe_empty=look.guessed,
    )


@lru_cache(maxsize=4096)
def _image(kind: EntryKind, arch: int, flags: int, major: int, minor: int) -> Image:
    suffix = "a" if flags & SPECIFIC else "f" if flags & FAMILY else ""
    return Image(kind, f"{arch}{suffix}", f"{major}.{minor}" if kind == "ptx" else "")


@lru_cache(maxsize=4096)
def _alike(images: tuple[Image, ...]) -> tuple[Image, ...]:
    return tuple(sorted(set(images)))


class _Look:
    """Decides whether the entries of one container hold a kernel, opening as few as it can."""

    def __init__(self, source: Source, *, names: bool) -> None:
        self._source, self._want_names = source, names
        self._found = False
        self.names: tuple[str, ...] = ()
        self.guessed = False

    @property
    def state(self) -> State:
        """``kernels`` or ``empty``, by the entries seen so far."""
        return "kernels" if self._found else "empty"

    def at(self, entry: _Entry) -> Fault | None:
        """Take one entry into account; returns the damage met in a payload that was opened."""
        if entry.kind == "nvvm":
            self._found = True
            return None
        if self._found and (self.names or not self._want_names):
            return None
        plain = entry.plain if entry.flags & (LZ4 | ZSTD) else entry.stored
        big = plain >= SURE_SIZE or entry.stored > 2 * SURE_SIZE
        if big and (not self._want_names or max(plain, entry.stored) > NAMES_SIZE):
            self._found = True
            return None
        try:
            if entry.flags & LZ4 and not self._want_names and self._shows_code(entry, plain):
                self._found = True
                return None
            data = self._open(entry, plain)
        except CodecMissingError:
            small = _EMPTY_NEW if int(entry.target) >= 100 else _EMPTY_OLD
            self._found = self._found or plain > small
            self.guessed = True
            return None
        if data is None:
            return Fault(entry.payload, f"{plain} bytes of {entry.kind}, compressed", "what cannot be opened")
        if entry.kind == "ptx":
            self._found = self._found or has_entry(data)
            self.names = self.names or (entry_names(data) if self._want_names else ())
            return None
        try:
            if not self._want_names and names_code(data):
                self._found = True
                return None
            source, elf, sections = open_cubin(data)
        except ElfError as fault:
            return Fault(entry.payload, f"a cubin ({fault.expected})", fault.found)
        self._found = self._found or has_kernels(sections)
        self.names = self.names or (kernel_names(source, elf, sections) if self._want_names else ())
        return None

    def _shows_code(self, entry: _Entry, plain: int) -> bool:
        """Whether the beginning of an LZ4 payload is enough to see a kernel; mostly it is, and saves time.

        Section names stand at the beginning of the cubins that NVIDIA's tools write.
        """
        stop = b"\0.text." if entry.kind == "sass" else b".entry"
        start = lz4_block(self._stored(entry), min(plain, _BEGINNING), stop)
        if start is None:
            return False
        return has_entry(start) if entry.kind == "ptx" else stop in start

    def _stored(self, entry: _Entry) -> bytes:
        packed = entry.flags & (LZ4 | ZSTD) and 0 < entry.packed <= entry.stored
        return self._source.read(entry.payload, entry.packed if packed else entry.stored)

    def _open(self, entry: _Entry, plain: int) -> bytes | None:
        data = self._stored(entry)
        if entry.flags & LZ4:
            opened = lz4_block(data, plain)
        elif entry.flags & ZSTD:
            opened = zstd_frame(data, plain)
        else:
            return data
        return opened if opened is not None and len(opened) == plain else None


def _zero(source: Source, start: int, end: int) -> bool:
    """Whether [start, end) holds zero bytes only (padding)."""
    return first_nonzero(source, start, end) < 0


def first_nonzero(source: Source, start: int, end: int) -> int:
    """Return the offset of the first byte within [start, end) that is not 0, or -1."""
    while start < end:
        data = source.read(start, min(end - start, SURE_SIZE))
        if not data:
            return -1
        if rest := data.lstrip(b"\0"):
            return start + len(data) - len(rest)
        start += len(data)
    return -1
