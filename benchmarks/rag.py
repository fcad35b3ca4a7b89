"""Measure the built-in retriever against bm25s, and check the ranking metrics against trec_eval.

.venv/bin/python benchmarks/rag.py [--chunks 100000] [--queries 200] [--rounds 3]

A seeded generator makes the corpus, English and Chinese mixed. The bare loop gets finished lists of words: it reads no
file, splits and stores nothing, and returns row numbers instead of passages. If ir_measures is installed, its numbers
are compared with ours on random rankings with ties.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from evalloom.core.ranking import Passage, measures, rank, sources_in_order
from evalloom.rag.retrieval import Index, open_index, words

_SYLLABLES = [consonant + vowel for consonant in "bdfghklmnprstvwxz" for vowel in "aeiou"]
_HANZI = [chr(code) for code in range(0x4E00, 0x4E00 + 1500)]
_PAIRS = "报销发票年假主管审批叉车限速退货客户合同系统申请标准公司部门安全检查设备时间工作"
_KNOWN = [_PAIRS[at : at + 2] for at in range(0, len(_PAIRS), 2)]
_SECTIONS = 50


def zipf(values: list[str], chance: random.Random) -> str:
    """One of the values, the first far more often than the last, as words are."""
    return values[min(int(chance.paretovariate(0.6)) - 1, len(values) - 1)]


def sentence(chance: random.Random, english: list[str]) -> str:
    if chance.random() < 0.5:
        return " ".join(zipf(english, chance) for _ in range(12)) + ". "
    parts = [chance.choice(_KNOWN) if chance.random() < 0.5 else chance.choice(_HANZI) for _ in range(14)]
    return "".join(parts) + "。"


def write_corpus(folder: Path, sections: int) -> list[str]:
    """Documents of fifty sections each, every section long enough for one chunk; some queries that meet them."""
    chance = random.Random(7)
    english = ["".join(chance.choices(_SYLLABLES, k=chance.randint(2, 5))) for _ in range(60_000)]
    for number in range(-(-sections // _SECTIONS)):
        here = min(_SECTIONS, sections - number * _SECTIONS)
        texts = (f"## Part {at}\n\n" + "".join(sentence(chance, english) for _ in range(9)) for at in range(here))
        (folder / f"d{number:05}.md").write_text("\n\n".join(texts), encoding="utf-8")
    return [sentence(chance, english)[:40] for _ in range(1000)]


# -- indexing and queries -----------------------------------------------------------------------------


def timed(work: Any, *arguments: Any) -> tuple[float, Any]:
    start = perf_counter()
    result = work(*arguments)
    return perf_counter() - start, result


def rate(ask: Any, queries: list[str]) -> float:
    """Answers a second."""
    seconds, _ = timed(lambda: [ask(query) for query in queries])
    return len(queries) / seconds


def memory() -> str:
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB at most so far"


def all_words(index: Index) -> list[list[str]]:
    return [words(text) for text in index.texts()]


def measure_retrieval(chunks: int, count: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as root, tempfile.TemporaryDirectory() as store:
        queries = write_corpus(Path(root), chunks)[:count]
        index = open_index(Path(root), Path(store))
        seconds, index_size = timed(index.refresh)
        print(f"{index_size.chunks:,} chunks of {index_size.documents:,} documents")
        print(f"  index from files                {seconds:6.2f} s   ({memory()})")
        (Path(root) / "d00000.md").write_text("One document is another now.", encoding="utf-8")
        print(f"  refresh after one changed file  {timed(index.refresh)[0]:6.2f} s")
        print(f"  refresh when nothing changed    {timed(index.refresh)[0]:6.2f} s")
        index.close()
        seconds, index = timed(open_and_query, Path(root), Path(store), queries[0])
        print(f"  open, refresh, one query        {seconds:6.2f} s")
        tokens = all_words(index)
        bare(index, tokens, queries, rounds)
        rank_bm25(tokens, queries[:10])
        index.close()


def open_and_query(root: Path, store: Path, query: str) -> Index:
    index = open_index(root, store)
    index.refresh()
    index.search(query, 5)
    return index


def index_ask(index: Index) -> Any:
    return lambda query: index.search(query, 5)


def bare(index: Index, tokens: list[list[str]], queries: list[str], rounds: int) -> None:
    import bm25s

    engine = bm25s.BM25(method="lucene")
    seconds, _ = timed(lambda: engine.index(tokens, show_progress=False))
    print(f"  bare bm25s, index from words    {seconds:6.2f} s   ({memory()})")

    def ask(query: str) -> Any:
        terms = [list(dict.fromkeys(words(query)))]
        return engine.retrieve(terms, k=5, show_progress=False)

    pairs = [(rate(ask, queries), rate(index_ask(index), queries)) for _ in range(rounds)]
    theirs, ours = (median(rates) for rates in zip(*pairs, strict=True))
    ratio = median(ours / theirs for theirs, ours in pairs)
    worst = max(disagreement(engine, index, query) for query in queries)
    print(f"  bare bm25s, top 5               {theirs:6.0f} queries/s")
    print(f"  index, top 5 with passages      {ours:6.0f} queries/s   {ratio:.2f} × (median of {rounds} rounds)")
    print(f"  largest difference of a score   {worst:.1e}")


def disagreement(engine: Any, index: Index, query: str) -> float:
    terms = list(dict.fromkeys(words(query)))
    theirs = sorted(engine.retrieve([terms], k=5, show_progress=False).scores[0].tolist(), reverse=True)
    ours = [one.score or 0.0 for one in index.search(query, 5)]
    return max(abs(a - b) for a, b in zip((score for score in theirs if score > 0), ours, strict=True))


def rank_bm25(tokens: list[list[str]], queries: list[str]) -> None:
    if find_spec("rank_bm25") is None:
        print("  rank_bm25 is not installed: skipped")
        return
    from rank_bm25 import BM25Okapi

    seconds, engine = timed(BM25Okapi, tokens)
    speed = rate(lambda query: engine.get_top_n(words(query), tokens, 5), queries)
    print(f"  rank_bm25, index from words     {seconds:6.2f} s")
    print(f"  rank_bm25, top 5                {speed:6.1f} queries/s")


# -- agreement ----------------------------------------------------------------------------------------


def agreement(rankings: int) -> None:
    """Holds every measure against ir_measures (pytrec_eval), on rankings with many equal scores."""
    if find_spec("ir_measures") is None:
        print("ir_measures is not installed: the metrics were not compared. Run: pip install ir-measures")
        return
    import ir_measures
    from ir_measures import AP, RR, P, R, Success, nDCG

    k = 5
    theirs = {f"hit@{k}": Success @ k, f"recall@{k}": R @ k, f"precision@{k}": P @ k, f"ndcg@{k}": nDCG @ k}
    theirs |= {"mrr": RR, "map": AP}
    names = {measure: name for name, measure in theirs.items()}
    runs, wanted = random_rankings(rankings)
    qrels = {query: dict.fromkeys(expected, 1) for query, expected in wanted.items()}
    worst = dict.fromkeys(theirs, 0.0)
    compared = 0
    for metric in ir_measures.iter_calc(list(theirs.values()), qrels, runs):
        passages = sorted((Passage(name, score=score) for name, score in runs[metric.query_id].items()), key=_falling)
        ours = measures(rank(wanted[metric.query_id], sources_in_order(passages)), k)
        name = names[metric.measure]
        worst[name] = max(worst[name], abs(ours[name] - metric.value))
        compared += 1
    # Nothing compared would look like agreement.
    assert compared == rankings * len(theirs), compared
    print(f"agreement with ir_measures {ir_measures.__version__}: {compared:,} values of {rankings:,} random rankings")
    for name, difference in worst.items():
        print(f"  {name:12} differs by at most {difference:.1e}")
    assert max(worst.values()) <= 1e-9, "the measures are not those of trec_eval"


def _falling(passage: Passage) -> float:
    return -(passage.score or 0.0)


def random_rankings(count: int) -> tuple[dict[str, dict[str, float]], dict[str, list[str]]]:
    chance = random.Random(11)
    names = [f"d{number}.md" for number in range(40)]
    runs, wanted = {}, {}
    for number in range(count):
        ranked = chance.sample(names, chance.randint(1, 30))
        # Whole numbers, so that many are equal.
        runs[f"q{number}"] = {name: float(chance.randint(1, 6)) for name in ranked}
        wanted[f"q{number}"] = chance.sample(names, chance.randint(1, 6))
    return runs, wanted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--rankings", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    agreement(options.rankings)
    measure_retrieval(options.chunks, options.queries, options.rounds)


if __name__ == "__main__":
    main()
