"""Small faults in the code, one at a time: the tests must notice each of them.

    python -m tests.mutants                          # all 300 mutants of MODULES
    python -m tests.mutants component/budget/book.py
    python -m tests.mutants --json mutants.json --jobs 2

The faults of a module are chosen by its name alone, so every run makes the same ones. Each is made
in a copy of the tree. First the tests beside the module run; the faults that they miss are then
made together, one of each module at a time, and the whole gate runs on them. What passes survives.

A mutant may be equivalent to the code: it survives then, and no test can change that.
"""

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
EACH: Final = 10
"""Mutants of a module."""
LONGEST_S: Final = 2400.0
"""Seconds after which tests count as hanging, which is a mutant noticed. More than they ever take:
one test that hangs ends its process long before (`tests.hanging`).
"""
TEST_S: Final = 300
_SET_UP: Final = ".venv"
"""What the set-up has fetched for the tests, which belongs to no commit."""

MODULES: Final[dict[str, str]] = {
    "component/agent/completions.py": "tests/component/agent",
    "component/agent/rows.py": "tests/component/agent tests/component/tasks/test_turns.py",
    "component/audit/lines.py": "tests/component/audit",
    "component/budget/book.py": "tests/component/budget",
    "component/conversations/stored_files.py": "tests/component/conversations",
    "component/features/task_commands/commands.py": "tests/component/features/task_commands",
    "component/link/messages/outbox.py": "tests/component/link/connection",
    "component/control/server.py": "tests/component/control",
    "component/tasks/admission.py": "tests/component/tasks",
    "component/features/questions/answers.py": "tests/component/features/questions",
    "component/task_messages/events.py": "tests/component/task_messages",
    "component/memory/reconciler.py": "tests/component/features/memory_nodes",
    "component/link/messages/parsing.py": (
        "tests/component/link/messages tests/component/features/questions"
    ),
    "component/metrics/counters.py": "tests/component/metrics",
    "component/models/answer_draft.py": "tests/component/models",
    "component/features/memory_nodes/privileges.py": "tests/component/features/memory_nodes",
    "component/policy/flows.py": "tests/component/policy tests/component/tools",
    "component/policy/policy.py": "tests/component/policy tests/component/tools",
    "component/features/notifications/plan.py": "tests/component/features/notifications",
    "component/features/objects/writing.py": "tests/component/features/objects",
    "component/features/schedules/rows.py": "tests/component/features/schedules",
    "component/pubsub/access.py": "tests/component/pubsub tests/component/features/pubsub",
    "component/link/router/fair_queue.py": "tests/component/link/router",
    "component/http/gate.py": "tests/component/http tests/component/features/builtins",
    "component/skills/forms.py": "tests/component/skills",
    "component/skill_directories/approvals.py": "tests/component/features/installed_skills",
    "component/store/writes.py": "tests/component/store",
    "component/tasks/questions.py": "tests/component/tasks",
    "component/tasks/replay.py": "tests/component/tasks",
    "component/tasks/gate.py": "tests/component/tasks tests/component/tools",
    "component/features/webhooks/delivery.py": "tests/component/features/webhooks",
    "xep/jid.py": "tests/xep",
}
"""Modules of all packages, most of them about rights, money, repetition and loss, and the tests
that are beside each."""

_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COMPUTED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}


class Mutant(NamedTuple):
    """One fault: the text between two offsets of a module in UTF-8, replaced."""

    module: str
    line: int
    start: int
    end: int
    text: str
    before: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.before!r} -> {self.text!r}"

    def make(self, tree: Path) -> None:
        """Write the module with this fault."""
        path = tree / self.module
        source = path.read_bytes()
        path.write_bytes(source[: self.start] + self.text.encode() + source[self.end :])


def mutants(module: str, root: Path = ROOT) -> list[Mutant]:
    """The mutants of a module: `EACH` of them, or all if there are fewer."""
    source = (root / module).read_bytes()
    found = list(_Candidates(module, source).all())
    random.Random(module).shuffle(found)
    return sorted(found[:EACH], key=lambda mutant: mutant.start)


class _Candidates:
    """All faults that can be made in a module."""

    def __init__(self, module: str, source: bytes) -> None:
        self._module = module
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def all(self) -> Iterator[Mutant]:
        """Every fault, in the order of the code."""
        for node in _code(ast.parse(self._source)):
            for new in _faults(node):
                start = self._starts[node.lineno - 1] + node.col_offset
                assert node.end_lineno is not None
                assert node.end_col_offset is not None
                end = self._starts[node.end_lineno - 1] + node.end_col_offset
                before = self._source[start:end].decode()
                text = ast.unparse(new)
                if isinstance(new, ast.expr) and not isinstance(new, ast.Constant):
                    text = f"({text})"
                if text != before:
                    yield Mutant(self._module, node.lineno, start, end, text, before)


def _code(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Statements and expressions that run when the code is used: no annotations or log lines."""
    for name, value in ast.iter_fields(tree):
        if name in {"annotation", "returns", "decorator_list", "type_params"}:
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or _is_ignored(node):
                continue
            if isinstance(node, ast.expr | ast.stmt):
                yield node
            yield from _code(node)


def _is_ignored(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr):
        return True
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    if isinstance(node, ast.Expr):
        called = node.value
        return isinstance(called, ast.Constant) or ast.unparse(called).startswith("_log.")
    return False


def _faults(node: ast.expr | ast.stmt) -> Iterator[ast.expr | ast.stmt]:
    new = copy.copy(node)
    match new:
        case ast.Compare(ops=[operator]) if type(operator) in _COMPARED:
            new.ops = [_COMPARED[type(operator)]()]
            yield new
        case ast.BoolOp(op=operator):
            new.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield new
        case ast.UnaryOp(op=ast.Not()):
            yield new.operand
        case ast.BinOp(op=operator) if type(operator) in _COMPUTED:
            new.op = _COMPUTED[type(operator)]()
            yield new
        case ast.AugAssign(op=operator) if type(operator) in _COMPUTED:
            new.op = _COMPUTED[type(operator)]()
            yield new
        case ast.Constant(value=bool()):
            yield ast.Constant(not new.value)
        case ast.Constant(value=int() | float()):
            yield ast.Constant(new.value + 1)
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.Delete():
            yield ast.Pass()
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
        case ast.IfExp(test=ast.Name() | ast.Attribute() | ast.Call()):
            new.test = ast.UnaryOp(ast.Not(), new.test)
            yield new


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


class Tree:
    """A copy of the tree, in which faults are made."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.path = Path(tempfile.mkdtemp(prefix="mutants-", dir=source.parent))
        names = subprocess.run(
            ["git", "ls-files", "-z"], cwd=source, check=True, capture_output=True, text=True
        )
        for name in filter(None, names.stdout.split("\0")):
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, self.path / name)
        if (source / _SET_UP).exists():
            (self.path / _SET_UP).symlink_to(source / _SET_UP)

    def notices(self, found: Sequence[Mutant], options: Sequence[str]) -> str:
        """Run the tests on the faults. Return the first test that fails; nothing if none does."""
        for mutant in found:
            mutant.make(self.path)
        environment = {**os.environ, "PYTHONPATH": str(self.path), "PYTHONDONTWRITEBYTECODE": "1"}
        environment["TEST_LIMIT_S"] = str(TEST_S)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        process = subprocess.Popen(
            command,
            cwd=self.path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return "it hangs"
        finally:
            for module in {mutant.module for mutant in found}:
                shutil.copy2(self.source / module, self.path / module)
        if process.returncode == 0:
            return ""
        failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return "; ".join(failed) or output[-2000:]

    def check(self, options: Sequence[str]) -> None:
        """Run the tests on no fault. Tests that fail then would seem to notice every fault."""
        if who := self.notices([], options):
            self.close()
            raise SystemExit(f"These tests fail without a fault: {who}")

    def close(self) -> None:
        """Delete the copy."""
        shutil.rmtree(self.path, ignore_errors=True)


def _folders(module: str) -> list[str]:
    return MODULES.get(module, "tests").split()


def beside(found: Sequence[Mutant], source: Path, jobs: int) -> dict[Mutant, str]:
    """Run the tests beside each module on each of its mutants: who noticed it, or nothing."""
    trees: SimpleQueue[Tree] = SimpleQueue()
    made = [Tree(source)]
    made[0].check(sorted({f for m in found for f in _folders(m.module)}))
    made += [Tree(source) for _ in range(jobs - 1)]
    for tree in made:
        trees.put(tree)

    def one(mutant: Mutant) -> str:
        tree = trees.get()
        try:
            name = Path(mutant.module).stem
            folders = _folders(mutant.module)
            first = [str(p) for f in folders for p in sorted(tree.path.glob(f"{f}/test_{name}.py"))]
            options = [*first, *folders, "-x"]
            return tree.notices([mutant], options)
        finally:
            trees.put(tree)

    noticed = {}
    with ThreadPoolExecutor(jobs) as pool:
        for mutant, who in zip(found, pool.map(one, found), strict=True):
            print(f"{'noticed ' if who else 'missed  '} {mutant}  {who[:120]}", flush=True)
            noticed[mutant] = who
    for tree in made:
        tree.close()
    return noticed


def together(missed: Sequence[Mutant], source: Path, gate: Sequence[str]) -> dict[Mutant, str]:
    """Run the gate on the mutants that the tests beside them missed, as many at once as it passes:
    one of each module. A group that it fails is halved until one is left.
    """
    by_module: dict[str, list[Mutant]] = {}
    for mutant in missed:
        by_module.setdefault(mutant.module, []).append(mutant)
    groups = [
        [of[number] for of in by_module.values() if number < len(of)]
        for number in range(max(map(len, by_module.values()), default=0))
    ]
    noticed: dict[Mutant, str] = {}
    tree = Tree(source)
    if groups:
        tree.check(gate)
    while groups:
        group = groups.pop()
        who = tree.notices(group, gate)
        print(f"{len(group)} together: {who[:300] or 'missed'}", flush=True)
        if not who or len(group) == 1:
            noticed |= dict.fromkeys(group, who)
        else:
            half = len(group) // 2
            groups += [group[:half], group[half:]]
    tree.close()
    return noticed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("modules", nargs="*", help="modules (default: MODULES)")
    parser.add_argument("--source", type=Path, default=ROOT, help="the tree (default: this one)")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once (default: 2)")
    parser.add_argument("--gate", default="-n 4 -x", help="options of the gate's run")
    parser.add_argument("--json", type=Path, help="where to write what was found")
    parser.add_argument("--only", type=Path, help="only the mutants missed in this file of --json")
    options = parser.parse_args()
    chosen = [m for module in options.modules or MODULES for m in mutants(module, options.source)]
    if options.only is not None:
        wanted = {tuple(row[:-1]) for row in json.loads(options.only.read_text()) if not row[-1]}
        chosen = [mutant for mutant in chosen if tuple(mutant) in wanted]
    noticed = beside(chosen, options.source, options.jobs)
    missed = [mutant for mutant, who in noticed.items() if not who]
    if missed and options.gate:
        noticed |= together(missed, options.source, options.gate.split())
    survivors = [mutant for mutant, who in noticed.items() if not who]
    print(f"\n{len(noticed)} mutants, {len(noticed) - len(survivors)} noticed. Survivors:")
    print(*survivors, sep="\n")
    if options.json is not None:
        options.json.write_text(json.dumps([[*m, who] for m, who in noticed.items()], indent=1))


if __name__ == "__main__":
    main()
