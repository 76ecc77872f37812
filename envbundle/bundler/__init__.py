"""Lock to layers, chunks and a signed descriptor."""
