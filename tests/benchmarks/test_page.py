"""docs/reference/benchmarks.md is made from the stored results."""

from benchmarks import counts, page
from benchmarks.__main__ import NAMES
from benchmarks.report import Line, Target


def test_the_page_is_made_from_the_stored_results() -> None:
    made = page.page(page.stored(), counts.stored())
    assert page.PAGE.read_text() == made, "run `python -m benchmarks.page`"


def test_each_benchmark_has_a_place_on_the_page() -> None:
    shown = {name for names in page._GROUPS.values() for name in names}
    assert shown == {*NAMES} - {"counts"}


def test_a_row_has_the_medians_and_whether_the_target_is_met() -> None:
    line = Line("a turn", "ms", [3.0, 2.0, 4.0], [1.0, 2.0, 2.0], Target(1.3, "at most"))
    row = page.row_of("turn", line)
    assert (row["ours"], row["peer"], row["ratio"], row["ratios"]) == (3.0, 2.0, 2.0, [1.0, 3.0])
    assert (row["target"], row["met"]) == ("at most 1.3", False)
    (shown,) = (one for one in page.page([row], {}).splitlines() if one.startswith("| a turn"))
    assert "| 3 ms | 2 ms | 2.00 (1.00 to 3.00) | at most 1.3, **not met** |" in shown
