"""The code steps of the review_sentiment pipeline."""


def clean_text(review: str) -> dict[str, str | int]:
    """The review in lower case and without doubled spaces, with its length."""
    text = " ".join(review.lower().split())
    return {"text": text, "length": len(text)}
