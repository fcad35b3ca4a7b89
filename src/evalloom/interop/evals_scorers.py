"""The classes of OpenAI evals as checks: by the name that a user gives, and by the class in a registry."""

from __future__ import annotations

from typing import Any

from evalloom.core.model import Case, Check, Record
from evalloom.data.cells import is_blank
from evalloom.data.dialect import Scorer

_BASIC = "evals.elsuite.basic."
_MODEL_BASED = "evals.elsuite.modelgraded.classify:ModelBasedClassify"
_SCORER_OF = {
    f"{_BASIC}match:Match": "match",
    f"{_BASIC}includes:Includes": "includes",
    f"{_BASIC}fuzzy_match:FuzzyMatch": "fuzzy_match",
    f"{_BASIC}json_match:JsonMatch": "json_match",
    f"{_BASIC}json_validator:JsonValidator": "json_validator",
}
_PROMPTS_OF_ITS_OWN = (
    "the prompts of that spec are not here; write judge, with the question of the spec as the criterion"
)


def _ideal_check(kind: str, case: Case, options: Record) -> tuple[Check, ...]:
    ideal = case.raw.get("ideal")
    return (Check(f"evals_{kind}", ideal, name="ideal", options=options),) if "ideal" in case.raw else ()


def _match(case: Case, options: Record) -> tuple[Check, ...]:
    return _ideal_check("match", case, {})


def _includes(case: Case, options: Record) -> tuple[Check, ...]:
    return _ideal_check("includes", case, options)


def _fuzzy_match(case: Case, options: Record) -> tuple[Check, ...]:
    return _ideal_check("fuzzy_match", case, {})


def _json_match(case: Case, options: Record) -> tuple[Check, ...]:
    return _ideal_check("json_match", case, {})


def _json_validator(case: Case, options: Record) -> tuple[Check, ...]:
    return (Check("evals_json_validator", name="is JSON"),)


def _fact(case: Case, options: Record) -> tuple[Check, ...]:
    ideal = case.raw.get("ideal")
    judged = Check("judge", ideal, name="ideal", options={"variant": "factuality"})
    return () if is_blank(ideal) or ideal == [] else (judged,)


def _closedqa(case: Case, options: Record) -> tuple[Check, ...]:
    criteria = options.get("criteria") or case.raw.get("criteria")
    if not isinstance(criteria, str) or is_blank(criteria):
        return (
            _not_scored("closedqa", "the spec 'closedqa' needs criteria, and neither the eval nor the sample has any"),
        )
    return (Check("judge", criteria, name="criteria", options={"variant": "model-graded-closedqa"}),)


def _not_scored(name: str, reason: str) -> Check:
    return Check("evals_class", name=name, options={"reason": reason})


SCORERS = (
    Scorer("match", "the output begins with an ideal answer", _match),
    Scorer("includes", "an ideal answer is in the output", _includes, {"ignore_case": bool}),
    Scorer("fuzzy_match", "one is in the other, without case, punctuation and articles", _fuzzy_match),
    Scorer("json_match", "the output is JSON that equals an ideal answer", _json_match),
    Scorer("json_validator", "the output is JSON", _json_validator),
    Scorer("fact", "a judge finds no conflict with the ideal answer", _fact),
    Scorer("closedqa", "a judge finds that the output meets the criteria", _closedqa, {"criteria": str}),
)
_BY_NAME = {scorer.name: scorer for scorer in SCORERS}


def checks_of(case: Case, class_: str, arguments: Record) -> tuple[Check, ...]:
    """Return the checks of a class of evals; for a class that is not scored here, one that tells why."""
    if name := _SCORER_OF.get(class_):
        options = {"ignore_case": True} if name == "includes" and arguments.get("ignore_case") is True else {}
        return tuple(_BY_NAME[name].checks(case, options))
    short = class_.rpartition(":")[2]
    if class_ != _MODEL_BASED:
        scored = ", ".join(named.rpartition(":")[2] for named in _SCORER_OF)
        return (
            _not_scored(short, f"the class {class_!r} is not scored here; scored are {scored}, ModelBasedClassify"),
        )
    return _model_based(case, str(arguments.get("modelgraded_spec") or "").strip(), arguments)


def _model_based(case: Case, spec: str, arguments: Record) -> tuple[Check, ...]:
    if arguments.get("metaeval") is True or "completion" in case.raw:
        return (_not_scored(spec, "the samples hold answers that are judged already; this eval measures the judge"),)
    if arguments.get("multicomp_n", 1) != 1:
        return (_not_scored(spec, "it compares several outputs, and a check here sees one"),)
    if spec == "fact":
        return _fact(case, {})
    if spec == "closedqa":
        written: Any = arguments.get("modelgraded_spec_args")
        return _closedqa(case, written if isinstance(written, dict) else {})
    return (_not_scored(spec, f"the spec {spec!r} is not scored here: {_PROMPTS_OF_ITS_OWN}"),)
