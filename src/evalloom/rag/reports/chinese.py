"""The Chinese phrases that only RAG reports use, by the English ones."""

from __future__ import annotations

PHRASES: dict[str, str] = {
    # Sentences.
    "A difference is shown by {list}.": "以下指标显示有差异：{list}。",
    "An expected source is among the first {passages} in {share} of {cases} (95 % CI {interval}).": (
        "{cases}中有 {share} 在前 {passages}中找到期望的来源（95% 置信区间 {interval}）。"
    ),
    "Bars are {name}, the bands over them 95 % intervals; the table has those below each figure.": (
        "条形表示 {name}，其上的带表示 95% 置信区间；表中各数字下方列出区间。"
    ),
    "Cases in no pair": "不属于任何配对的用例",
    "Cases in no pair ({n}):": "不属于任何配对的用例（{n}）：",
    "No case could be measured.": "没有可测量的用例。",
    "No difference shown by {name}.": "{name} 未显示差异。",
    "No difference shown by {name}: the interval and the exact test do not agree.": (
        "{name} 未显示差异：置信区间与精确检验不一致。"
    ),
    "No difference shown by {name}: this may be chance.": "{name} 未显示差异：可能是偶然。",
    "No pair can be compared.": "没有可比较的配对。",
    "None.": "无。",
    "Not measured: {list}.": "未测量：{list}。",
    "Nothing was found.": "未找到任何内容。",
    "Only the official wording works:": "只有官方说法有效：",
    "Oral wordings are answered as often as official ones": "口语说法与官方说法的回答率相同",
    "Oral wordings are answered {n} points less often than official ones": "口语说法的回答率比官方说法低 {n} 个百分点",
    "Oral wordings are answered {n} points more often than official ones": "口语说法的回答率比官方说法高 {n} 个百分点",
    "Oral wordings are found as often as official ones": "口语说法与官方说法的命中率相同",
    "Oral wordings are found {n} points less often than official ones": "口语说法的命中率比官方说法低 {n} 个百分点",
    "Oral wordings are found {n} points more often than official ones": "口语说法的命中率比官方说法高 {n} 个百分点",
    "Pairs that cannot be compared": "无法比较的配对",
    "Pairs that cannot be compared ({n}):": "无法比较的配对（{n}）：",
    "Pairs: {list}.": "配对：{list}。",
    "The answer contains everything it must in {share} of {cases} (95 % CI {interval}).": (
        "{cases}中有 {share} 的回答包含全部必需内容（95% 置信区间 {interval}）。"
    ),
    "The answer contains everything it must, with good {required}, in {share} of {cases} (95 % CI {interval}).": (
        "{cases}中有 {share} 的回答包含全部必需内容，且 {required} 良好（95% 置信区间 {interval}）。"
    ),
    "The bar is {name} from 0 to 100 %. In brackets: 95 % intervals.": (
        "条形表示 {name}，从 0 到 100%。括号内为 95% 置信区间。"
    ),
    "Those for which only the official wording works come first and are set off.": (
        "只有官方说法有效的概念排在最前，并突出显示。"
    ),
    "pass_rate, which counts an error as not passed and a case as passed if {rule} of its repeats pass, "
    "is {share} of {cases} (95 % CI {interval}); no measure counts errors.": (
        "pass_rate 将错误计为未通过，用例有 {rule} 的重复通过即计为通过，"
        "其值为{cases}中的 {share}（95% 置信区间 {interval}）；其他指标不计错误。"
    ),
    "pass_rate, which counts an error as not passed, is {share} of {cases} (95 % CI {interval}); "
    "no measure counts errors.": (
        "pass_rate 将错误计为未通过，其值为{cases}中的 {share}（95% 置信区间 {interval}）；其他指标不计错误。"
    ),
    "{n} cases with an error in some repeats: measured on the others.": ("{n} 个用例的部分重复出错：按其余重复测量。"),
    "{name} is over {some} of {cases}: the others cannot be scored on it.": (
        "{name} 只涉及 {cases}中的 {some} 个：其余用例无法按此评分。"
    ),
    "{name}: {n} cases could not be judged.": "{name}：{n} 个用例无法评判。",
    "{sentence}: {oral} against {official} ({figures}).": "{sentence}：{oral} 对 {official}（{figures}）。",
    "… and {more}: the JSON report has them all.": "……另有{more}：JSON 报告包含全部。",
    # Headings.
    "About the case": "关于此用例",
    "Answer": "回答",
    "Answer to {case}": "对 {case} 的回答",
    "Buckets": "分桶",
    "By bucket": "按分桶",
    "By concept": "按概念",
    "By measure": "按指标",
    "By pair": "按配对",
    "By tag": "按标签",
    "Configuration": "设置",
    "Errors": "错误",
    "Found": "命中",
    "Measures by {kind}": "按{kind}列出的指标",
    "Missed": "未命中",
    "Missing in the answer": "回答中缺少",
    "Not measured": "未测量",
    "Oral against official": "口语说法与官方说法",
    "Oral against official by concept": "各概念的口语说法与官方说法",
    "Oral against official by measure": "各指标的口语说法与官方说法",
    "Oral against official by pair": "各配对的口语说法与官方说法",
    "Profile {name}": "配置 {name}",
    "RAG answers": "RAG 回答",
    "RAG retrieval": "RAG 检索",
    "Skip to what was missed": "跳到未命中的用例",
    "Sources in the order they were found": "按找到的顺序列出的来源",
    "By bucket: {name}": "各分桶的 {name}",
    "{name} by bucket. {list}": "各分桶的 {name}。{list}",
    # Words and parts of sentences.
    " and ": "和",
    "(none)": "（无）",
    "alike": "相同",
    "at": "位置",
    "at rank {n}": "排名第 {n}",
    "batch": "批次",
    "both": "两者皆可",
    "bucket": "分桶",
    "case": "用例",
    "concept": "概念",
    "conclusion": "结论",
    "created": "创建时间",
    "documents": "文档",
    "errors": "错误",
    "exact McNemar": "精确 McNemar 检验",
    "exact McNemar {p}": "精确 McNemar 检验 {p}",
    "expected": "期望",
    "gap": "差距",
    "gap (points)": "差距（百分点）",
    "gap in points": "差距（百分点）",
    "measure": "指标",
    "measured": "已测量",
    "measures": "指标",
    "missing": "缺少",
    "neither": "两者皆不可",
    "no case measured": "没有测量的用例",
    "no source": "无来源",
    "not found": "未找到",
    "not measured": "未测量",
    "nothing": "无",
    "official": "官方",
    "official only": "仅官方",
    "only the official wording works": "只有官方说法有效",
    "oral": "口语",
    "oral higher": "口语更高",
    "oral less": "口语较少",
    "oral lower": "口语更低",
    "oral more": "口语较多",
    "oral only": "仅口语",
    "overall": "总体",
    "pair": "配对",
    "pairs": "配对",
    "profile": "配置",
    "query": "查询",
    "repeats": "重复",
    "retrieved instead": "实际检索到",
    "searched": "检索目录",
    "setting": "设置项",
    "status": "状态",
    "tag": "标签",
    "tags": "标签",
    "value": "值",
    "why": "原因",
    "works": "有效的说法",
    "{low} to {high}": "{low} 至 {high}",
    "{n} cases could not be scored": "{n} 个用例无法评分",
    "{n} cases ended in an error": "{n} 个用例出错",
    "{n} cases expect nothing": "{n} 个用例没有期望",
    "{n} cases were blocked": "{n} 个用例受阻",
    "{n} cases were skipped": "{n} 个用例被跳过",
    "{n} more cases": " {n} 个用例",
    "{n} more concepts": " {n} 个概念",
    "{n} more pairs": " {n} 个配对",
    "{n} more tags": " {n} 个标签",
    "{n} pairs": "{n} 个配对",
    "{n} passages": "{n} 个段落",
    "{n} points": "{n} 个百分点",
    "{name} ({oral} against {official})": "{name}（{oral} 对 {official}）",
    "{pairs}: {list}.": "{pairs}：{list}。",
}
