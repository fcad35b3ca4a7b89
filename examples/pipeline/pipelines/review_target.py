"""The pipeline of review_sentiment.yaml as one Python target that tells its steps and figures."""

from __future__ import annotations

from typing import Any

from review_steps import clean_text

from evalloom.model import Context, Output, Request

JUDGE = "Judge the sentiment of this review. Answer with one word: positive, negative or neutral.\n{review}"
SUM_UP = "Sum up this review in one sentence in the language {language!r}.\n{review} ({sentiment})"


async def review(context: Context, review: str = "", language: str = "zh") -> Output:
    """One review gives its sentiment and a summary; a batch of reviews gives figures."""
    items = context.case.meta.get("batch_items")
    return await read_many(context, items) if items else await read_one(context, review, language)


async def read_one(context: Context, review: str, language: str) -> Output:
    cleaned = clean_text(review)
    sentiment = await ask(context, JUDGE.format(review=cleaned["text"]))
    summary = await ask(context, SUM_UP.format(language=language, review=cleaned["text"], sentiment=sentiment))
    steps = {"clean_text": cleaned, "analyze_sentiment": sentiment, "write_summary": summary}
    return Output({"sentiment": sentiment, "summary": summary}, steps)


async def read_many(context: Context, items: list[dict[str, Any]]) -> Output:
    sentiments = [await ask(context, JUDGE.format(review=item["review"])) for item in items]
    ratings = [item["rating"] for item in items]
    figures = {
        "total_reviews": len(items),
        "average_rating": sum(ratings) / len(ratings),
        "lowest_rating": min(ratings),
    }
    return Output({"figures": figures}, {"analyze_batch": sentiments}, figures)


async def ask(context: Context, prompt: str) -> str:
    response = await context.llm(Request([{"role": "user", "content": prompt}]))
    return response.text.strip()
