"""The commands: one file each, one line here (name -> module in this folder, summary)."""

from __future__ import annotations

COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("init", "write a commented manifest to start from"),
    "capture": ("capture", "turn a living environment into a manifest, overlays and wheels"),
    "inspect": ("inspect", "say which GPU code files, wheels or environments hold"),
    "lock": ("lock", "choose and judge exact artifacts for each target"),
    "plan": ("plan", "show what a lock would bring to a target and what it was judged on"),
    "pack": ("pack", "make signed bundles of locked targets in a store"),
    "sign": ("sign", "add a signature to a bundle in a store"),
    "route": ("route", "say which way a copy would take, and how fast it is"),
    "copy": ("copy", "copy a bundle from one store to another"),
    "verify": ("verify", "check every byte of a store or of an installed environment"),
    "install": ("install", "install a bundle under a prefix, verified, in one atomic step"),
    "run": ("run", "run a command inside an installed environment"),
    "generations": ("generations", "list the generations under a prefix"),
    "rollback": ("rollback", "go back to the previous generation"),
    "gc": ("gc", "remove old generations of a prefix, or unused blobs of a store"),
    "receipt": ("receipt", "print the receipt of an installed environment"),
    "history": ("history", "show who installed and rolled back what under a prefix"),
    "diff": ("diff", "compare environments, locks, bundles and receipts"),
    "explain": ("explain", "explain a code such as E-ARCH-NONE"),
    "demo": ("demo", "run the main job on a small example and show it"),
}
