"""``route``: which way a copy between two locations would take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbundle.transfer.location import parse_location
from envbundle.transfer.route import find_route

from .copy import way

if TYPE_CHECKING:
    from envbundle.transfer.options import TransferOptions
    from envbundle.transfer.route import Route


def route(source: str, destination: str, *, options: TransferOptions) -> Route:
    """Try the ways between two locations; raises ``UserInputError`` (E-LOCATION)."""
    here, there = parse_location(source), parse_location(destination)
    return find_route(here, there, way(here, there), options)
