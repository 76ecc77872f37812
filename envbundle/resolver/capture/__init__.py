"""Capture: a living environment becomes a manifest, overlays and, where bytes exist nowhere else, wheels.

* Nothing is ever written inside the environment, and its code is not run: only its interpreter is asked,
  without site and without writing bytecode.
* Files are compared with the published wheel, fetched by its sha256; never with the cache of an installer,
  which hard links may have changed together with the environment.
* What is captured is what is on the disk. Every file is hashed once; what is copied is hashed again as it is
  written, so that a file that changes meanwhile is noticed.
"""
