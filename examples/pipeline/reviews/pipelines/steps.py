"""The code steps of the pipelines in this folder."""

import re
from collections import Counter
from typing import Any


def preprocess(text: str, lowercase: bool = False, remove_punctuation: bool = False) -> dict[str, str]:
    """Collapse the spaces of a text and convert it to the requested form."""
    text = re.sub(r"[^\w\s]", "", text) if remove_punctuation else text
    text = " ".join(text.split())
    return {"cleaned_text": text.lower() if lowercase else text}


def clean(review: str, rating: int) -> dict[str, Any]:
    """Collapse the spaces of a review."""
    return {"review": " ".join(review.split()), "rating": rating}


def label(item: dict[str, Any], sentiment: str) -> dict[str, Any]:
    """Add the sentiment to an item."""
    return {**item, "sentiment": sentiment}


def load(dataset_id: str, analysis_type: str, source: str, filters: dict[str, Any]) -> dict[str, Any]:
    """Describe what would be loaded; the case contains the feedback itself."""
    return {"dataset": dataset_id, "analysis": analysis_type, "source": source, **filters}


def unify(items: list[dict[str, Any]], normalize: bool = False, remove_duplicates: bool = False) -> dict[str, Any]:
    """Bring feedback into one form, without duplicates if requested."""
    texts = [
        {**item, "feedback": item["feedback"].strip().lower() if normalize else item["feedback"]} for item in items
    ]
    unique = list({one["feedback"]: one for one in texts}.values()) if remove_duplicates else texts
    return {"items": unique, "items_processed": len(items), "duplicates_removed": len(items) - len(unique)}


def count(sentiments: list[str]) -> dict[str, int]:
    """Count the customers by sentiment."""
    return {f"{word}_count": sentiments.count(word) for word in ("positive", "negative", "neutral")}


def topics(items: list[dict[str, Any]], num_topics: int = 3, method: str = "count") -> list[str]:
    """Return the most frequent categories."""
    return [name for name, _ in Counter(item["category"] for item in items).most_common(num_topics)]
