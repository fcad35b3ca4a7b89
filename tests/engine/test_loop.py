"""The event loop of the commands."""

from evalloom.engine.loop import run_loop


class Batch:
    """Formats itself by reading a batch, as `Results` does."""

    formatted = 0

    def __repr__(self) -> str:
        Batch.formatted += 1
        return "Batch()"


def test_result_of_the_loop_is_not_formatted() -> None:
    async def work() -> Batch:
        return Batch()

    assert isinstance(run_loop(work()), Batch)
    assert Batch.formatted == 0
