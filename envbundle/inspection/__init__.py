"""What files hold and need, read from their bytes. Takes buffers and streams; opens nothing.

What other rooms call:

* ``scan.scan_file(name, source, size=...) -> FileScan``: one reading of one file (buffer or seekable stream).
* ``coverage.judge_file(scan, arch, driver=...) -> Judgement`` and ``coverage.sum_distribution(judgements)``:
  what that means for one GPU, without the file. ``report.gap_finding`` words what is missing.
* ``wheel.read_wheel(stream, filename) -> WheelContents``, ``wheel.iter_members`` (bytes checked against
  RECORD), ``wheel.scan_wheel`` (every member in one streamed pass).
* ``report.inspect_json(files, distributions, archs)``: the object that `envbundle inspect --json` prints.
* ``cuda``: the rules of what runs where, as tables; ``isa_of_driver``, ``driver_for_isa`` for people.

Damage to GPU code is a finding with its offset and a verdict ``unknown`` where it matters, never an
exception. A wheel that contradicts itself raises ``IntegrityError``.
"""
