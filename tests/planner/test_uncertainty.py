from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise, product
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest

from fitkit.errors import InputError
from fitkit.planner.costs import model_costs
from fitkit.planner.layer_curves import LayerTimes
from fitkit.planner.network import Network, NetworkEdge, NetworkLayer
from fitkit.planner.plan import Plan, PlannedLayer, Schedule
from fitkit.planner.problem import Problem
from fitkit.planner.transfers import RingLink
from fitkit.planner.uncertainty import Draws, assess, draws


@dataclass(frozen=True)
class Known:
    """Seconds and scatter of each layer on 1 and on 2 GPUs of a batch of 2."""

    seconds: Mapping[str, tuple[float, float]]
    scatter: Mapping[str, float]

    def times(
        self, network: Network, batches: np.ndarray, *, estimate_missing: bool = False
    ) -> tuple[list[LayerTimes], tuple[str, ...]]:
        place = {2.0: 0, 1.0: 1}
        which = [place[batch] for batch in batches.tolist()]
        found = []
        for layer in network.layers:
            seconds = np.array(self.seconds[layer.name])[which]
            loadings = self.scatter.get(layer.name, 0.0) * np.eye(2)[:, which]
            found.append(LayerTimes(seconds, np.zeros(len(which), bool), loadings))
        return found, ()


def drawn(
    seconds: Mapping[str, tuple[float, float]], scatter: Mapping[str, float], n: int = 400,
    *, link: RingLink | None = None, n_params: int = 0,
) -> Draws:  # fmt: skip
    layers = tuple(NetworkLayer(name, "Linear", n_params, output_bytes=5e5) for name in seconds)
    edges = tuple(NetworkEdge(i, i + 1, 5e5) for i in range(len(layers) - 1))
    costs = model_costs(
        Network("net", layers, edges), layer_model=Known(seconds, scatter),
        comm_model=link or RingLink(0.0, 1e8), n_gpus=2, global_batch=2,
    )  # fmt: skip
    return draws(costs, n)


def search(problem: Problem) -> Schedule:
    """Brute force."""
    options = [range(len(layer.n_gpus)) for layer in problem.layers]
    best = min(product(*options), key=lambda choice: problem.evaluate(choice)[0])
    return schedule(problem, best)


def schedule(problem: Problem, choice: tuple[int, ...]) -> Schedule:
    layers = tuple(
        PlannedLayer(i, layer.name, "", int(layer.n_gpus[k]), 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, ())
        for i, (layer, k) in enumerate(zip(problem.layers, choice, strict=True))
    )
    return Schedule(*problem.evaluate(choice), layers)


def planned(problem: Problem, choice: tuple[int, ...] | None = None) -> Plan:
    found = search(problem) if choice is None else schedule(problem, choice)
    return Plan(found.iter_s, found.gpu_s, found.layers, "net", 2, 2)


class TestDraws:
    def test_scatter_as_the_models_say(self) -> None:
        found = drawn({"a": (2e-3, 1e-3)}, {"a": 0.1}, 2000)
        logs = np.log([problem.layers[0].compute_s for problem in found])
        assert logs.mean(axis=0) == pytest.approx(np.log([2e-3, 1e-3]), abs=0.01)
        assert logs.std(axis=0) == pytest.approx([0.1, 0.1], rel=0.06)
        assert abs(np.corrcoef(logs.T)[0, 1]) < 0.06

    def test_are_the_same_for_a_seed(self) -> None:
        found = drawn({"a": (2e-3, 1e-3)}, {"a": 0.1}, 3)
        again = drawn({"a": (2e-3, 1e-3)}, {"a": 0.1}, 3)
        assert [p.layers[0].compute_s.tolist() for p in found] == [
            p.layers[0].compute_s.tolist() for p in again
        ]
        assert found[0].layers[0].compute_s.tolist() != found[1].layers[0].compute_s.tolist()
        assert [p.evaluate([0]) for p in found[1:]] == [
            found[1].evaluate([0]),
            found[-1].evaluate([0]),
        ]
        other = draws(found.costs, 3, seed=1)
        assert other[0].layers[0].compute_s.tolist() != found[0].layers[0].compute_s.tolist()

    def test_without_doubt_are_the_problem(self) -> None:
        found = drawn({"a": (2e-3, 1e-3), "b": (1e-3, 1e-3)}, {}, 2)
        for problem in found:
            assert problem.evaluate([0, 1]) == pytest.approx(found.base.evaluate([0, 1]))
            assert problem.layers[0].reference_s == pytest.approx(2e-3)

    def test_a_size_on_the_curve_of_links_errs_once(self) -> None:
        # Both edges move the same bytes: whatever the link is, they cost the same.
        found = drawn(dict.fromkeys("abc", (0.001, 0.001)), {}, 5, link=RingLink(0.0, 1e8, 0.5))
        for problem in found:
            assert problem.edges[0].transfer_s.tolist() == problem.edges[1].transfer_s.tolist()
        assert found[0].edges[0].transfer_s[0, 1] != found[1].edges[0].transfer_s[0, 1]

    def test_at_least_one(self) -> None:
        found = drawn({"a": (2e-3, 1e-3)}, {}, 1)
        with pytest.raises(ValueError, match="n_draws 0"):
            draws(found.costs, 0)


class TestAssess:
    def test_how_often_it_is_the_best(self) -> None:
        # log(t2 / t1) is normal around log(0.97) with a variance of 2 * 0.05^2. The plan is as
        # good as the best unless t1 < t2 / 1.001.
        found = drawn({"a": (1e-3, 0.97e-3)}, {"a": 0.05}, 4000)
        result = assess(planned(found.base), found, search=search)
        ratio = NormalDist(np.log(0.97), 0.05 * np.sqrt(2))
        assert result.best_share == pytest.approx(ratio.cdf(np.log(1.001)), abs=0.03)
        assert result.n_draws == 4000
        assert result.iter_s == pytest.approx(0.97e-3, rel=0.01)
        middle = NormalDist(np.log(0.97e-3), 0.05)
        assert result.low_s == pytest.approx(np.exp(middle.inv_cdf(0.05)), rel=0.01)
        assert result.high_s == pytest.approx(np.exp(middle.inv_cdf(0.95)), rel=0.01)

    def test_regret(self) -> None:
        found = drawn({"a": (1e-3, 0.97e-3)}, {"a": 0.05})
        result = assess(planned(found.base), found, search=search)
        times = np.array([problem.layers[0].compute_s for problem in found])
        regret = np.maximum(times[:, 1] - times[:, 0], 0)
        worse = regret > 1e-3 * times.min(axis=1)
        assert result.regret_s == pytest.approx(regret.mean())
        assert result.regret_if_not_s == pytest.approx(regret[worse].mean())
        assert result.regret_if_not_p95_s == pytest.approx(np.quantile(regret[worse], 0.95))

    def test_a_plan_that_always_wins(self) -> None:
        found = drawn({"a": (2e-3, 1e-3)}, {"a": 0.01})
        result = assess(planned(found.base), found, search=search)
        assert (result.best_share, result.regret_s, result.regret_if_not_s) == (1.0, 0.0, 0.0)
        assert result.informants == ()

    def test_a_plan_that_never_does(self) -> None:
        found = drawn({"a": (2e-3, 1e-3)}, {"a": 0.01})
        result = assess(planned(found.base, (0,)), found, search=search)
        assert result.best_share == 0.0
        assert result.regret_if_not_s == pytest.approx(1e-3, rel=0.01)

    def test_draws_that_no_plan_fits_are_left_out(self) -> None:
        found = drawn({"a": (1e-3, 0.97e-3)}, {"a": 0.05}, 50)

        def picky(problem: Problem) -> Schedule:
            if problem.layers[0].compute_s[0] > 1e-3:
                raise InputError("no plan keeps the limits")
            return search(problem)

        expected = sum(problem.layers[0].compute_s[0] <= 1e-3 for problem in found)
        plan = planned(found.base)
        assert assess(plan, found, search=picky, n_informants=0).n_draws == expected

        def hopeless(problem: Problem) -> Schedule:
            raise InputError("never")

        with pytest.raises(InputError, match="net: in no draw"):
            assess(plan, found, search=hopeless)

    def test_arguments(self) -> None:
        found = drawn({"a": (2e-3, 1e-3)}, {}, 2)
        plan = planned(found.base)
        with pytest.raises(ValueError, match="0 draws"):
            assess(plan, [], search=search)
        with pytest.raises(ValueError, match="at level 1"):
            assess(plan, found, search=search, level=1.0)
        with pytest.raises(ValueError, match="a plan of 1 layers for a problem of 2"):
            assess(plan, drawn({"a": (2e-3, 1e-3), "b": (1e-3, 1e-3)}, {}, 2), search=search)
        odd = replace(plan, layers=(replace(plan.layers[0], n_gpus=3),))
        with pytest.raises(ValueError, match="layer a: 3 GPUs are no option"):
            assess(odd, found, search=search)

    def test_the_search_of_fitkit(self) -> None:
        module = pytest.importorskip("fitkit.planner.search")
        found = drawn({"a": (1e-3, 0.97e-3), "b": (1e-3, 0.5e-3)}, {"a": 0.05, "b": 0.2}, 60)
        plan = module.plan(found.base, n_gpus=2)
        assert assess(plan, found) == assess(plan, found, search=search)

    def test_branches_side_by_side(self) -> None:
        module = pytest.importorskip("fitkit.planner.search")
        found = drawn({"a": (1e-3, 0.97e-3), "b": (1e-3, 0.5e-3)}, {"a": 0.05, "b": 0.2}, 8)
        plan = module.plan(found.base, n_gpus=2, parallel_branches=True)
        result = assess(plan, found)
        assert 0 < result.low_s <= result.iter_s <= result.high_s
        assert result.iter_s == pytest.approx(plan.iter_s, rel=0.2)


SECONDS = {"a": (1e-3, 0.95e-3), "b": (1e-3, 0.5e-3), "c": (1e-3, 1.02e-3)}


class TestInformants:
    def removed(self, found: Draws, layer: int, plan: Plan) -> float:
        """Mean regret with one layer as drawn and all others at their means, by brute force."""
        every = np.array([[one.compute_s for one in problem.layers] for problem in found])
        mean, moved = every.mean(axis=0), found.base.edges[0].transfer_s
        choice = [layer.n_gpus - 1 for layer in plan.layers]

        def step(times: np.ndarray, options: tuple[int, ...]) -> float:
            compute = sum(times[i, k] for i, k in enumerate(options))
            return compute + sum(moved[k, m] for k, m in pairwise(options))

        regrets = []
        for own in every[:, layer]:
            times = mean.copy()
            times[layer] = own
            least = min(step(times, options) for options in product(range(2), repeat=3))
            regrets.append(step(times, tuple(choice)) - least)
        return float(np.mean(regrets))

    def test_removed_regret_is_that_of_brute_force(self) -> None:
        found = drawn(SECONDS, {"a": 0.1, "b": 0.05, "c": 0.05}, link=RingLink(0.0, 1e11))
        plan = planned(found.base)
        result = assess(plan, found, search=search)
        place = {"a": 0, "b": 1, "c": 2}
        assert {one.name for one in result.informants} == {"a", "c"}  # nothing changes b's count
        for one in result.informants:
            assert one.removed_s == pytest.approx(self.removed(found, place[one.name], plan))
        assert sum(one.share for one in result.informants) == pytest.approx(1, abs=0.02)

    def test_one_doubtful_layer_holds_all_the_regret(self) -> None:
        found = drawn(SECONDS, {"a": 0.1}, link=RingLink(0.0, 1e11))
        result = assess(planned(found.base), found, search=search)
        (only,) = result.informants
        assert (only.name, only.share) == ("a", pytest.approx(1))
        assert only.removed_s == pytest.approx(result.regret_s, rel=1e-6)

    def test_the_change_that_decides(self) -> None:
        found = drawn({"a": (1e-3, 0.96e-3)}, {"a": 0.1})
        (only,) = assess(planned(found.base), found, search=search).informants
        times = np.mean([problem.layers[0].compute_s for problem in found], axis=0)
        assert only.then_n_gpus == 1
        assert only.change == pytest.approx((times[0] - times[1]) / times[0])
        assert only.same_share is not None
        assert 0.5 < only.same_share < 0.9

    def test_communication(self) -> None:
        # 50 us of compute are won by the second GPU; its gradients cost about as many.
        link = RingLink(0.0, 1e8, 0.3)
        found = drawn({"a": (1e-3, 0.95e-3)}, {}, link=link, n_params=1_200)
        result = assess(planned(found.base), found, search=search)
        (only,) = result.informants
        assert (only.name, only.share) == ("communication", pytest.approx(1))
        assert only.removed_s == pytest.approx(result.regret_s, rel=1e-6)
        assert only.change is None

    def test_where_layers_run_side_by_side(self) -> None:
        found = drawn({"a": (1e-3, 0.95e-3)}, {"a": 0.1}, 100)

        def evaluate(problem: Problem, choice: object) -> float:
            return problem.evaluate(choice)[0]  # type: ignore[arg-type]

        plan = planned(found.base)
        (only,) = assess(plan, found, search=search, evaluate=evaluate).informants
        (serial,) = assess(plan, found, search=search).informants
        assert only.removed_s == pytest.approx(serial.removed_s)
        assert (only.then_n_gpus, only.change) == (None, None)

    def test_can_be_left_out(self) -> None:
        found = drawn({"a": (1e-3, 0.95e-3)}, {"a": 0.1}, 20)
        assert assess(planned(found.base), found, search=search, n_informants=0).informants == ()


def test_measured_rows_give_draws() -> None:
    """From a profile to an assessment, with the repetitions of the profile as doubt."""
    random = np.random.default_rng(0)
    rows = pd.DataFrame(
        [
            (name, float(b), (1e-4 + 1e-4 * b) * np.exp(0.05 * random.standard_normal()))
            for name in ("a", "b")
            for b in (1, 2, 4, 8)
            for _ in range(5)
        ],
        columns=["layer", "local_batch", "duration_s"],
    )
    layers = tuple(NetworkLayer(name, "Linear", 0, output_bytes=1e3) for name in ("a", "b"))
    costs = model_costs(
        Network("net", layers, (NetworkEdge(0, 1, 1e3),)), layer_model=rows,
        comm_model=RingLink(1e-5, 1e9), n_gpus=8, global_batch=8,
    )  # fmt: skip
    found = draws(costs, 500)
    logs = np.log([problem.layers[0].compute_s for problem in found])
    assert logs.std(axis=0) == pytest.approx([0.05 / np.sqrt(5)] * 4, rel=0.3)
    assert assess(planned(found.base), found, search=search).best_share == 1.0
