"""The pipeline part of the demo."""

from __future__ import annotations

from pathlib import Path

from evalloom.data.dialect import Rules
from evalloom.engine.example import Example, ExampleFile


def _testset(file: str, pipeline: str) -> ExampleFile:
    """Build the example of a testset that is checked against a pipeline."""

    def rules(examples: Path) -> Rules:
        from evalloom.pipeline.target import with_pipeline

        return with_pipeline(Rules(root=examples), str(examples / pipeline))

    return ExampleFile(file, "pipeline", rules)


EXAMPLE = Example(
    suites=(
        "pipeline",
        "pipeline/reviews",
    ),
    files=(
        _testset(
            "pipeline/testsets/review_sentiment_basic_v1.jsonl",
            "pipeline/pipelines/review_sentiment.yaml",
        ),
        _testset(
            "pipeline/reviews/testsets/multi_step_sentiment_v2.jsonl",
            "pipeline/reviews/pipelines/multi_step_sentiment.yaml",
        ),
        _testset(
            "pipeline/reviews/testsets/customer_reviews_batch_v2.jsonl",
            "pipeline/reviews/pipelines/customer_reviews.yaml",
        ),
        _testset(
            "pipeline/reviews/testsets/customer_feedback_full_v2.jsonl",
            "pipeline/reviews/pipelines/customer_feedback.yaml",
        ),
    ),
)
