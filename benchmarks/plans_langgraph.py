"""LangGraph as the peer of plans: each step is a node, and SQLite stores the state of the graph.

    python -m benchmarks.plans_langgraph FILE

It runs in an environment of its own, so it imports nothing of this project.
"""

import itertools
import json
import operator
import sqlite3
import sys
import time
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    done: Annotated[list[str], operator.add]


def _node(name: str) -> Any:
    def run(_state: State) -> dict[str, list[str]]:
        return {"done": [name]}

    return run


def _graph(order: str, steps: int, saver: SqliteSaver) -> Any:
    graph = StateGraph(State)
    names = [f"step{number}" for number in range(steps)]
    for name in names:
        graph.add_node(name, _node(name))
    edges = (
        itertools.pairwise([START, *names, END])
        if order == "chain"
        else [(START, name) for name in names] + [(name, END) for name in names]
    )
    for before, after in edges:
        graph.add_edge(before, after)
    return graph.compile(checkpointer=saver)


def main(file: str) -> None:
    database = sqlite3.connect(file, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    saver = SqliteSaver(database)
    threads = itertools.count()
    for line in sys.stdin:
        order = json.loads(line)
        graph = _graph(order["do"], order["steps"], saver)
        began = time.perf_counter()
        for _ in range(order["plans"]):
            config = {
                "configurable": {"thread_id": str(next(threads))},
                "recursion_limit": order["steps"] + 5,
            }
            made = graph.invoke({"done": []}, config, durability="sync")
            assert len(made["done"]) == order["steps"]
        taken = time.perf_counter() - began
        print(json.dumps(taken * 1e3 / order["plans"] / order["steps"]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
