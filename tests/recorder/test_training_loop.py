"""What a training loop calls becomes steps and phases."""

from __future__ import annotations

from fitkit.recorder.training_loop import TrainingLoop

TRAIN, TEST = "training set", "test set"
STEP = ["[", "io(", ")", "forward(", ")", "backward(", ")", "optimizer(", ")"]


class Told:
    """Notes what is told: ``[`` and ``]`` of a step, ``name(`` and ``)`` of a phase."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def begin_step(self) -> None:
        self.words.append("[")

    def end_step(self, disturbed_by: str | None = None) -> None:
        self.words.append("]" if disturbed_by is None else f"]{disturbed_by}")

    def drop_step(self) -> None:
        self.words.append("dropped")

    def begin_phase(self, name: str) -> None:
        self.words.append(f"{name}(")

    def end_phase(self) -> None:
        self.words.append(")")

    def close(self) -> None:
        self.words.append("closed")


class Program:
    """A program that calls what training programs call."""

    def __init__(self) -> None:
        self.told = Told()
        self.loop = TrainingLoop(self.told, {TRAIN})

    def fetch(self, loader: str = TRAIN, found: bool = True) -> None:
        self.loop.fetch_begins(loader)
        self.loop.fetch_ends(loader, found)

    def backward(self, failed: bool = False) -> None:
        if self.loop.backward_begins():
            self.loop.backward_ends(failed)

    def update(self, is_recorded: bool = True) -> None:
        self.loop.update_begins("optimizer")
        self.loop.update_ends("optimizer", is_recorded)

    def step(self) -> None:
        self.fetch()
        self.loop.forward_begins(True)
        self.backward()
        self.update()

    def evaluate(self) -> None:
        for _ in range(2):
            self.fetch(TEST)
            self.loop.forward_begins(False)
        self.fetch(TEST, found=False)

    @property
    def words(self) -> list[str]:
        found, self.told.words = self.told.words, []
        return found


def test_a_step_ends_when_the_next_one_begins() -> None:
    program = Program()
    program.step()
    assert program.words == STEP
    program.step()
    assert program.words == ["]", *STEP]


def test_the_end_of_the_loader_is_no_step() -> None:
    program = Program()
    program.step()
    program.fetch(found=False)
    assert program.words == [*STEP, "]", "[", "io(", ")", "dropped"]


def test_evaluation_lasts_until_training_goes_on() -> None:
    program = Program()
    program.step()
    program.evaluate()
    assert program.words == [*STEP, "]", "eval("]
    program.step()
    assert program.words == [")", *STEP]


def test_evaluation_on_the_training_set_takes_its_fetch_back() -> None:
    program = Program()
    program.fetch()
    program.loop.forward_begins(False)
    assert program.words == ["[", "io(", ")", "dropped", "eval("]


def test_a_call_without_gradients_within_a_step_is_no_phase_of_it() -> None:
    program = Program()
    program.fetch()
    program.loop.forward_begins(True)
    program.loop.forward_begins(False)
    program.backward()
    program.update()
    assert program.words == STEP


def test_another_loader_is_known_after_the_first_forward_call_that_it_feeds() -> None:
    program = Program()
    program.fetch("next epoch")
    program.loop.forward_begins(True)
    assert program.words == ["[", "forward("]
    program.update()
    program.fetch("next epoch")
    assert program.words == [")", "optimizer(", ")", "]", "[", "io(", ")"]


def test_gradients_of_several_batches_are_one_step() -> None:
    program = Program()
    for _ in range(2):
        program.fetch()
        program.loop.forward_begins(True)
        program.backward()
    program.update()
    assert program.words == [*STEP[:7], *STEP[1:]]


def test_a_closure_computes_within_the_optimizer_step() -> None:
    program = Program()
    program.fetch()
    program.loop.update_begins("optimizer")
    program.loop.forward_begins(True)
    program.backward()
    program.loop.update_ends("optimizer", True)
    phases = ["io", "optimizer", "forward", "backward", "optimizer"]
    assert program.words == ["[", *(word for name in phases for word in (f"{name}(", ")"))]


def test_a_scaler_that_skips_the_update_ends_the_step_too() -> None:
    program = Program()
    program.loop.forward_begins(True)
    program.backward()
    program.loop.update_begins("scaler")
    program.loop.update_ends("scaler", True)
    program.step()
    assert program.words == ["[", *STEP[3:], "]", *STEP]


def test_an_optimizer_that_failed_is_forgotten() -> None:
    program = Program()
    program.fetch()
    program.loop.update_begins("scaler")
    program.loop.update_begins("optimizer")  # raises
    program.loop.update_begins("scaler")
    program.loop.update_ends("scaler", True)
    program.fetch()
    assert program.words == ["[", "io(", ")", "optimizer(", ")", "]", "[", "io(", ")"]


def test_other_optimizers_end_no_step() -> None:
    program = Program()
    program.fetch()
    program.update(is_recorded=False)
    program.loop.forward_begins(True)
    assert "]" not in program.words


def test_activations_are_computed_anew_within_backward() -> None:
    program = Program()
    program.loop.forward_begins(True)
    assert program.loop.backward_begins()
    program.loop.forward_begins(True)
    assert not program.loop.backward_begins()  # as reentrant checkpointing does
    program.loop.backward_ends(False)
    assert program.words == ["[", "forward(", ")", "backward(", ")"]


def test_exceptions_end_the_step() -> None:
    program = Program()
    program.fetch()
    program.loop.forward_begins(True)
    program.loop.forward_fails(True)
    assert program.words == [*STEP[:4], ")", "]exception"]
    program.loop.forward_begins(True)
    program.backward(failed=True)
    assert program.words == ["[", *STEP[3:7], "]exception"]
    program.loop.forward_begins(False)
    program.loop.forward_fails(False)
    assert program.words == ["eval("]


def test_backward_outside_of_a_step_is_no_phase() -> None:
    program = Program()
    program.backward()
    assert program.words == []


def test_saving_is_a_phase_between_steps_or_within_one() -> None:
    program = Program()
    program.step()
    program.loop.save_begins()
    program.loop.save_ends()
    program.fetch()
    program.loop.save_begins()
    program.loop.save_ends()
    assert program.words == [*STEP, "]", "checkpoint(", ")", *STEP[:3], "checkpoint(", ")"]


def test_the_end_of_the_program_keeps_a_step_that_was_updated() -> None:
    program = Program()
    program.step()
    program.loop.close()
    assert program.words == [*STEP, "closed"]
    program = Program()
    program.fetch()
    program.loop.forward_begins(True)
    program.loop.close()
    assert program.words == [*STEP[:4], ")", "dropped", "closed"]
