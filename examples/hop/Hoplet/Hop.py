"""A hoplet: does what a model wrote say anything that its context does not support?"""

from evalloom.hop import HopSession

FOUND = {
    "hallucination_detected": "bool",
    "hallucination_type": "fabrication, number, date, entity, causal or none",
    "evidence": "array",
}
FIND = {
    "en": "Find what the output says and the context does not support. hallucination_type says what is wrong; "
    "evidence quotes the passages. Look at: {focus}",
    "zh": "找出输出里上下文不支持的内容。hallucination_type 说明错在哪里，evidence 引用原文。只看：{focus}",
}
LOOK_AGAIN = {
    "en": "Look again: is every passage of the evidence really unsupported by the context?",
    "zh": "再看一遍：evidence 里的每一处是否确实没有上下文的支持？",
}


async def check_hop(session: HopSession, input_data: dict):
    """Asks, lets a second model verify the answer, and asks again before it reports a hallucination."""
    shown = {"context": input_data["context_window"], "output": input_data["model_output"]}
    language = "en" if shown["output"].isascii() else "zh"
    task = FIND[language].format(focus=input_data.get("focus", "everything" if language == "en" else "全部"))
    status, found = await session.hop_get(task, shown, return_format=FOUND)
    if status != "OK" or not found["hallucination_detected"]:
        return status, found
    # The second look is itself a check, so it needs no verifier.
    status, is_confirmed = await session.hop_judge(
        LOOK_AGAIN[language], {**shown, "evidence": found["evidence"]}, verifier=None
    )
    if is_confirmed is False:
        found = {"hallucination_detected": False, "hallucination_type": "none", "evidence": []}
    return status, found
