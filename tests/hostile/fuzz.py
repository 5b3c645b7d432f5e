"""Coverage-guided fuzzing of `xep`: python -m tests.hostile.fuzz [--seconds N] [target …]

Each target of `targets.py` runs for that many seconds in a process of its own, from the inputs in
`corpus/` and from those of earlier runs, which are kept in `.fuzz/`. An input for which something
does not hold is written to the corpus, so that the tests fail until it is repaired.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
KEPT = Path(".fuzz")
DICTIONARY = HERE / "fuzz.dict"
LONGEST_INPUT = 4096


def fuzz(target: str, arguments: list[str]) -> None:
    """Fuzz one target in this process; it does not return."""
    import atheris  # type: ignore[import-not-found]  # of the dependency group `fuzz`

    with atheris.instrument_imports(include=["xep"]):
        from tests.hostile.targets import TARGETS
    atheris.Setup([sys.argv[0], *arguments], TARGETS[target])
    atheris.Fuzz()


def run(target: str, seconds: int) -> int:
    """Fuzz one target in a process; 0 if everything held."""
    kept, known = KEPT / target, CORPUS / target
    for directory in (kept, known):
        directory.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "tests.hostile.fuzz", "--inside", target),
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST_INPUT}",
        f"-dict={DICTIONARY}",
        f"-artifact_prefix={known}/",
        "-timeout=20",
        "-print_final_stats=1",
        *(str(kept), str(known)),
    ]
    return subprocess.run(command, check=False).returncode


def main() -> int:
    """Fuzz the targets asked for, or all of them."""
    if sys.argv[1:2] == ["--inside"]:
        fuzz(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*", default=sorted(p.name for p in CORPUS.iterdir()))
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    options = parser.parse_args()
    failed = [target for target in options.targets if run(target, options.seconds)]
    if failed:
        print(f"Something does not hold: {', '.join(failed)}; see {CORPUS}.")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
