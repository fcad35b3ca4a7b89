"""The code steps of the pipelines in this folder."""

import re
from collections import Counter
from typing import Any


def preprocess(text: str, lowercase: bool = False, remove_punctuation: bool = False) -> dict[str, str]:
    """A text without doubled spaces, and in the form that was asked for."""
    text = re.sub(r"[^\w\s]", "", text) if remove_punctuation else text
    text = " ".join(text.split())
    return {"cleaned_text": text.lower() if lowercase else text}


def clean(review: str, rating: int) -> dict[str, Any]:
    """A review without doubled spaces."""
    return {"review": " ".join(review.split()), "rating": rating}


def label(item: dict[str, Any], sentiment: str) -> dict[str, Any]:
    """An item with its sentiment."""
    return {**item, "sentiment": sentiment}


def load(dataset_id: str, analysis_type: str, source: str, filters: dict[str, Any]) -> dict[str, Any]:
    """What would be loaded; the feedback itself stands in the case."""
    return {"dataset": dataset_id, "analysis": analysis_type, "source": source, **filters}


def unify(items: list[dict[str, Any]], normalize: bool = False, remove_duplicates: bool = False) -> dict[str, Any]:
    """Feedback in one form, each only once where that was asked for."""
    texts = [
        {**item, "feedback": item["feedback"].strip().lower() if normalize else item["feedback"]} for item in items
    ]
    unique = list({one["feedback"]: one for one in texts}.values()) if remove_duplicates else texts
    return {"items": unique, "items_processed": len(items), "duplicates_removed": len(items) - len(unique)}


def count(sentiments: list[str]) -> dict[str, int]:
    """How many customers feel how."""
    return {f"{word}_count": sentiments.count(word) for word in ("positive", "negative", "neutral")}


def topics(items: list[dict[str, Any]], num_topics: int = 3, method: str = "count") -> list[str]:
    """The most frequent categories."""
    return [name for name, _ in Counter(item["category"] for item in items).most_common(num_topics)]
