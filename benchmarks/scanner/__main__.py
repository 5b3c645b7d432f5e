"""`python -m benchmarks.scanner [FILE ...]`: each category; of files of your own, if given."""

import sys
from pathlib import Path

from benchmarks.scanner import HERE, PARTS, rates, read

for path in [Path(each) for each in sys.argv[1:]] or [HERE / f"{name}.jsonl" for name in PARTS]:
    print(f"\n{path.stem}")
    for what, rate in rates(read(path)).items():
        print(f"  {what:28} {rate}")
