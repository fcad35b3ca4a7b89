"""The code steps of the review_sentiment pipeline."""


def clean_text(review: str) -> dict[str, str | int]:
    """Lower-case a review, collapse its spaces, and return it with its length."""
    text = " ".join(review.lower().split())
    return {"text": text, "length": len(text)}
