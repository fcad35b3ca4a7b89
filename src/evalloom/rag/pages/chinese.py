"""The Chinese phrases that only the pages of RAG batches use, by the English ones."""

from __future__ import annotations

PHRASES: dict[str, str] = {
    "A retrieval batch stores the first 200 characters of a passage.": "检索批次只保存每个段落的前 200 个字符。",
    "All pairs": "所有配对",
    "All runs of this batch": "此批次的全部运行",
    "Another check failed.": "另一项检查未通过。",
    "Failing": "未通过",
    "Filled: in the passage of the expected source that matches best, with their weight. Dashed: not in it.": (
        "实线：出现在期望来源中最匹配的段落里，并附权重。虚线：未出现。"
    ),
    "Lists of cases": "用例列表",
    "Missed documents": "未命中的文档",
    "No expected source is among the {n} sources found.": "找到的 {n} 个来源中没有期望的来源。",
    "No passage has it, so the model could not know it.": "没有任何段落包含它，因此模型无从得知。",
    "No word of the query is in {source}.": "{source} 不含查询中的任何词。",
    "Only pairs that differ": "只看结果不同的配对",
    "Pairs that differ": "结果不同的配对",
    "Passages": "段落",
    "RAG batches": "RAG 批次",
    "Search again to see why": "重新检索以查明原因",
    "Show all pairs": "显示所有配对",
    "Show {n} more characters": "再显示 {n} 个字符",
    "Texts of a good answer": "好的回答应包含的文字",
    "The answer lacks a text.": "回答缺少应包含的文字。",
    "The documents have changed since this batch; this is the index as it is now.": (
        "此批次之后文档已有改动；这里显示的是当前的索引。"
    ),
    "The first expected source is at rank {n}.": "第一个期望的来源排在第 {n} 位。",
    "The first passage of {source} is at place {n}; only the first {k} count.": (
        "{source} 的第一个段落排在第 {n} 位；只计前 {k} 个。"
    ),
    "The model had it: passage {list}.": "模型已得到它：见段落 {list}。",
    "The query ended in an error.": "查询出错。",
    "The rate is hit@k of a retrieval, and for answers the share that contains everything it must. "
    "Below it: 95 % confidence intervals.": (
        "检索批次的比率是 hit@k；回答批次的比率是包含全部必需内容的回答所占的比例。下方为 95% 置信区间。"
    ),
    "The source was found at rank {n}, but the answer lacks a text.": (
        "来源已找到，排在第 {n} 位，但回答缺少应包含的文字。"
    ),
    "The whole run": "完整的运行记录",
    "The wordings of all pairs have the same outcome.": "所有配对的两种说法结果相同。",
    "The {bucket} wording of the same question:": "同一问题的{bucket}说法：",
    "There is no RAG batch in this folder yet. Measure the retrieval of your cases, or write starter cases from your "
    "documents first:": "此文件夹中还没有 RAG 批次。请测量用例的检索效果，或先从文档生成初始用例：",
    "There is no such case.": "没有这样的用例。",
    "Too large for this list: open it.": "批次太大，无法在列表中计算：请打开查看。",
    "What": "内容",
    "Why": "原因",
    "Why the sources above it matched": "排在前面的来源为何匹配",
    "Words of the query": "查询中的词",
    "ambiguous": "歧义",
    "another check failed": "另一项检查未通过",
    "expected source not among those found": "找到的来源中没有期望的来源",
    "found instead:": "实际找到：",
    "found, but the answer lacks a text": "已找到来源，但回答缺少文字",
    "id, query, answer": "编号、查询、回答",
    "in no document": "不在任何文档中",
    "in no passage that is shown": "不在所示的任何段落中",
    "in passage {list}": "在段落 {list} 中",
    "is not in the answer.": "不在回答中。",
    "nothing was found": "未找到任何内容",
    "oral − official": "口语 − 官方",
    "page {n}": "第 {n} 页",
    "place {n} of {all} passages": "{all} 个段落中的第 {n} 位",
    "reported only": "仅报告",
    "retrieval": "检索",
    "the answer lacks": "回答缺少",
    "{n} of {all} failing": "{n} / {all} 未通过",
    "{n} of {all} shown": "显示 {n} / {all}",
    "{source} could not be read, so it is not in the index: {reason}": "{source} 无法读取，因此不在索引中：{reason}",
    "{source} is no document of the index.": "索引中没有 {source} 这个文档。",
}
