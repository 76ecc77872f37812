"""Manifest to lock: versions by uv, bytes gathered and hashed, judged for the target."""
