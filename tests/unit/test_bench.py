"""The benchmark's own code: goals, tables, counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.counting_proxy import Counts
from bench.harness import FEWEST_ROUNDS, Done, Measure, for_seconds, per_operation, rounds_of, so_often
from bench.measures import MEASURES, selected
from bench.results import OURS, Report, Result, Spread, constant, counted, faster, figure, ratios, slower
from bench.table import BEGIN, END, inserted, markdown, number, shown

MACHINE = {"date": "2026-01-02", "processors": 2, "load": [1.5, 1, 1], "python": "3.11.2"}
PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
RATES = {"distsync": [10.0, 30.0, 20.0], "kazoo": [5.0, 5.0, 5.0], "bare": [20.0, 30.0, 60.0]}


def result(size: int = 1, requests: float = 3.0, server: str = "embedded") -> Result:
    counts = {OURS: {"requests": requests, "events": 0.0, "bytes": 500.0}}
    return Result("lock", server, size, RATES, {OURS: {"late": [0.1, 0.3, 0.2]}}, counts)


def measure(*goals: object, bound: str = "the disk") -> dict[str, Measure]:
    return {"lock": Measure("lock", "Lock cycle", lambda place, size: {}, goals, bound, operation="cycle")}  # type: ignore[arg-type]


def test_groups_and_rows_are_selected_once_each() -> None:
    assert [each.name for each in selected(["put", "wire", "wire-reads"])] == ["put", "wire-creates", "wire-reads"]
    assert {each.name for each in selected(["pools"])} >= {"pool-apply", "executor"}
    assert [each.name for each in selected([])] == [*MEASURES]


class TestGoals:
    def test_rates_are_compared_within_a_round(self) -> None:
        assert ratios(result(), OURS, "kazoo") == [2.0, 6.0, 4.0]
        assert faster(3).spread([result()]) == Spread(4.0, 2.0, 6.0)

    def test_ratio_of_times_is_inverse(self) -> None:
        assert slower(2, than="bare").spread([result()]) == Spread(2.0, 1.0, 3.0)

    @pytest.mark.parametrize(("wanted", "reached"), [(4.0, True), (4.1, False), (None, None)])
    def test_median_decides(self, wanted: float | None, reached: bool | None) -> None:
        assert faster(wanted).is_reached(Spread(4.0, 2.0, 6.0)) is reached

    def test_upper_bound_is_reached_below_it(self) -> None:
        late = figure("late", at_most=0.2)
        assert late.is_reached(Spread(0.2, 0.1, 0.3)) is True
        assert late.is_reached(Spread(0.21, 0.1, 0.3)) is False

    def test_counts_of_the_largest_size_decide(self) -> None:
        results = [result(10, 3.0), result(1000, 6.0)]
        assert counted("requests", "cycle", 5).spread(results) == Spread(6.0, 6.0, 6.0)
        assert constant("requests", "cycle", 1.1).spread(results) == Spread(2.0, 2.0, 2.0)

    @pytest.mark.parametrize("results", [[], [result()]])
    def test_missing_measurement_has_no_spread(self, results: list[Result]) -> None:
        assert faster(2, than="redis").spread(results) is None


class TestTable:
    @pytest.mark.parametrize(("value", "text"), [(1234.4, "1,234"), (12.34, "12.3"), (1.234, "1.23"), (0.0, "0.00")])
    def test_numbers_have_three_digits(self, value: float, text: str) -> None:
        assert number(value) == text

    def test_spread_of_one_value_is_the_value(self) -> None:
        assert shown(Spread(2.0, 2.0, 2.0), "x") == "2.00x"
        assert shown(Spread(2.0, 1.0, 3.0), "x") == "2.00x (1.00 to 3.00)"

    def test_row_shows_the_goal_and_whether_each_server_reaches_it(self) -> None:
        report = Report(MACHINE, [result(), result(server="zookeeper")])
        text = markdown(report, measure(faster(5), slower(3, than="bare")))
        assert "| measure | beside | wanted | embedded | zookeeper |" in text
        assert f"| Lock cycle | rate of kazoo | at least 5 |{' 4.00x (2.00 to 6.00) **no** |' * 2}" in text
        assert f"|  | time of bare | at most 3 |{' 2.00x (1.00 to 3.00) ✓ |' * 2}" in text
        assert "* Lock cycle: the disk." in text
        assert "| Lock cycle | cycle | embedded | 3.00 /  | 0.00 /  | 500 /  |" in text

    def test_server_without_this_measure_is_marked(self) -> None:
        other = Result("other", "zookeeper", 1, {}, {}, {})
        text = markdown(Report(MACHINE, [result(), other]), measure(faster(5)))
        assert "| 4.00x (2.00 to 6.00) **no** | not measured |" in text

    def test_text_is_inserted_between_the_marks_of_a_page(self) -> None:
        page = inserted(f"before {BEGIN} old {END} after", "new")
        assert page == f"before {BEGIN}\nnew\n{END} after"
        assert inserted(page, "new") == page

    def test_report_survives_json(self) -> None:
        report = Report(MACHINE, [result()])
        assert Report.from_json(json.loads(json.dumps(report.to_json()))) == report

    def test_new_result_replaces_the_old_one(self) -> None:
        report = Report(MACHINE, [result(), result(server="zookeeper")])
        assert [one.server for one in report.without([result()])] == ["zookeeper"]

    def test_result_of_another_size_is_added(self) -> None:
        report = Report(MACHINE, [result(100), result(1000)])
        assert [one.size for one in report.without([result(100)])] == [1000]

    def test_missed_goals_are_listed_with_their_servers(self) -> None:
        slow = Result("lock", "zookeeper", 1, {OURS: [6.0], "kazoo": [5.0]})
        text = markdown(Report(MACHINE, [result(), slow]), measure(faster(3)))
        assert "* Lock cycle, rate of kazoo: at least 3; zookeeper 1.20x.\n" in text
        assert "nothing: all was reached" in markdown(Report(MACHINE, [result()]), measure(faster(3)))

    def test_load_before_the_run_is_shown(self) -> None:
        text = markdown(Report({**MACHINE, "load_before": [0.1, 0, 0]}, [result()]), measure(faster(3)))
        assert "load 0.1 before and 1.5 at the end" in text


class TestTurns:
    def test_contestants_take_turns_in_starting_a_round(self) -> None:
        order: list[str] = []

        def turn(name: str) -> Done:
            order.append(name)
            return Done(1, 1.0)

        assert len(list(rounds_of({name: lambda name=name: turn(name) for name in "abc"}, 4))) == 4
        assert "".join(order) == "abc" + "bca" + "cab" + "abc"

    def test_rounds_end_after_their_time(self) -> None:
        assert len(list(rounds_of({"a": lambda: Done(1, 1.0)}, 9, seconds=0.0))) == FEWEST_ROUNDS

    def test_work_is_repeated(self) -> None:
        done: list[int] = []
        assert so_often(lambda: done.append(1), 7).operations == 7 == len(done)
        assert for_seconds(lambda: done.append(1), 0.001, batch=3).operations == len(done) - 7

    def test_counts_are_divided_by_operations(self) -> None:
        counts = Counts(30, 10, 2000).since(Counts(10, 0, 1000))
        assert per_operation(Done(10, 1.0), counts) == {"requests": 2.0, "events": 1.0, "bytes": 100.0}


def test_page_shows_the_stored_results() -> None:
    report = Report.from_json(json.loads((PAGE.parent / "performance" / "results.json").read_text()))
    assert markdown(report, MEASURES) in PAGE.read_text()


def test_each_measure_has_a_goal_and_names_its_bound() -> None:
    assert [one.name for one in MEASURES.values() if not (one.bound and one.goals and one.sizes)] == []
