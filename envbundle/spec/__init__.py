"""Frozen values and their text form. Nothing here opens a file, a socket or a process."""
