"""The context of a prompt-eval step: folder, plan, prompt and settings, the llms it uses, and the budget."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from evalloom.batchlog import FOLDER, batches
from evalloom.core.errors import BudgetSpent, CallError, EvalloomError
from evalloom.core.model import Case, Llm, Profile, Record, Run
from evalloom.engine.evaluate import Live, evaluate
from evalloom.engine.plan import Plan
from evalloom.engine.prepare import RunRequest, prepare
from evalloom.engine.resume import Resume
from evalloom.engine.system import Catalog
from evalloom.llms import LlmOptions, Llms
from evalloom.prompt_eval.folder import Folder, PromptA, load_plan, prompt_a, prompt_file
from evalloom.prompt_eval.plan import TestPlan
from evalloom.prompt_eval.settings import SECTION
from evalloom.prompt_eval.steps.provenance import Artifact, digest, save_flags
from evalloom.settings import FILE_NAME, Settings, first_profile, key_of, llm_of, load
from evalloom.settings import profile as find_profile
from evalloom.targets import BuiltTarget

Draft = TypeVar("Draft")


class BudgetLedger:
    """Tracks the cost and tokens of a command, whose steps share one budget."""

    def __init__(self) -> None:
        self.cost = 0.0
        self.tokens = 0

    def remaining(self, run_options: Record) -> Record:
        """Return the options with max_cost and max_tokens reduced by what is spent; raise when nothing remains."""
        spent = {"max_cost": self.cost, "max_tokens": self.tokens}
        limits = {name: run_options[name] - used for name, used in spent.items() if run_options.get(name) is not None}
        for name, left in limits.items():
            if left <= 0 < spent[name]:
                flag = f"--{name.replace('_', '-')} {run_options[name]:g}"
                raise EvalloomError("stopped", f"stopped: {flag} is reached. {_RESUME_HINT}")
        return {**run_options, **limits}


_RESUME_HINT = "Answers are saved; run the same command again to resume"


def _no_progress(live: Live) -> AbstractContextManager[None]:
    return nullcontext()


class StepOptions(Struct, frozen=True):
    """Which llms and profile a step uses and what it may spend; evalloom.yaml fills what is empty.

    `run_options` has the fields of RunSettings.
    """

    catalog: Catalog
    llm: str = ""
    judge: str = ""
    profile: str = ""
    config: str = ""
    run_options: Record = {}
    warn: Callable[[str], None] = print
    show_progress: Callable[[Live], AbstractContextManager[None]] = _no_progress
    ledger: BudgetLedger = msgspec.field(default_factory=BudgetLedger)

    def load_settings(self, folder: Folder, prompt: PromptA | None) -> Settings:
        """Load the settings file that --config names, or the one in the folder, beside the prompt or here."""
        path = Path(self.config) if self.config else _settings_file(folder, prompt)
        return load(path, self.catalog.sections)

    def with_saved_flags(self, saved: Record) -> StepOptions:
        """These options, completed with the llms and the profile that earlier commands named for this folder."""
        named = {flag: getattr(self, flag) or saved.get(flag) for flag in ("llm", "judge", "profile")}
        return msgspec.structs.replace(self, **{flag: name for flag, name in named.items() if isinstance(name, str)})

    def drafter(self, settings: Settings) -> str:
        """Return the name of the llm that drafts."""
        return self.llm or settings.section(SECTION).llm or self.runner(settings).run

    def runner(self, settings: Settings) -> Profile:
        """Return the profile that runs the prompt."""
        name = self.profile or settings.section(SECTION).profile
        return find_profile(settings, name) if name else first_profile(settings)

    def scorer(self, settings: Settings) -> Profile:
        """Return the profile that runs the evaluator, at temperature 0 unless the llm sets another."""
        name = self.judge or settings.section(SECTION).judge or settings.judge or self.runner(settings).run
        profile = find_profile(settings, name)
        params = {"temperature": 0, **llm_of(settings, profile.run).params, **profile.params}
        return msgspec.structs.replace(profile, params=params)


def _settings_file(folder: Folder, prompt: PromptA | None) -> Path | None:
    beside = prompt.path.parent if prompt and prompt.path else folder.path
    places = (folder.path / FILE_NAME, beside / FILE_NAME)
    return next((path for path in places if path.is_file()), None)


class BatchRuns(NamedTuple):
    """The id of a batch, empty if nothing was run, and its runs in the order of the cases."""

    id: str = ""
    runs: Sequence[Run] = ()


class StepContext(Struct, frozen=True):
    """The folder, plan, prompt, settings and options that a step works with."""

    folder: Folder
    plan: TestPlan
    prompt: PromptA
    settings: Settings
    options: StepOptions

    @property
    def runner(self) -> Profile:
        return self.options.runner(self.settings)

    @property
    def scorer(self) -> Profile:
        return self.options.scorer(self.settings)

    @property
    def yardstick(self) -> str:
        """The prompt that the evaluator sees: the one under test, unless the plan names another."""
        named = self.plan.yardstick
        return prompt_file(self.plan.path.parent / named).text if named else self.prompt.text

    def source(self, target: BuiltTarget, profile: Profile) -> str:
        """Return the digest of everything that the answers of a target under a profile depend on."""
        return digest(target.digest, Plan(target, (profile,), self.options.catalog, self.settings).profile_digests())

    def run_batch(
        self, artifact: Artifact, target: BuiltTarget, profile: Profile, cases: Sequence[Case], **more: Any
    ) -> BatchRuns:
        """Run a target on these cases and record the batch in the folder.

        The artifact names the batch that it was made from. A later batch was interrupted before its step finished;
        its answers are reused.
        """
        if not cases:
            return BatchRuns(artifact.provenance.batch)
        run_options = self.options.ledger.remaining(self.options.run_options)
        live = Live()
        with self.options.show_progress(live):
            plan = self._batch(target, profile, tuple(cases), {**run_options, **more})
            results = evaluate(plan, live, self._resume(artifact, target.name), self.options.warn)
        self.options.ledger.cost += results.summary.cost
        self.options.ledger.tokens += results.summary.tokens
        if results.stopped:
            why = "the budget is spent" if results.stopped.startswith("--max-") else results.stopped
            raise EvalloomError("stopped", f"stopped: {why}. {_RESUME_HINT}")
        return BatchRuns(results.path.name, [run for run, _ in results])

    def _batch(self, target: BuiltTarget, profile: Profile, cases: tuple[Case, ...], run_options: Record) -> Plan:
        """Build a plan for the engine, without checks."""
        whole: Record = {"limit": None, "tags": [], "filter": "", "variants": [], "output": [], "repeat": 1}
        run_options = {**whole, **run_options, "profiles": [profile.name]}
        config = self.settings.path.as_posix() if self.settings.path else ""
        return msgspec.structs.replace(
            prepare(
                RunRequest(config=config, target=target, options=run_options, python_cases=cases), self.options.catalog
            ),
            profiles=(profile,),
            settings=msgspec.structs.replace(self.settings, gates=[]),
            checks=(),
            judge="",
            home=self.folder.path,
        )

    def _resume(self, artifact: Artifact, target: str) -> Resume:
        """Resume the newest batch of a target if no artifact was made from it yet, as after `kill -9`.

        With --redo and a deleted artifact, a batch that finished is not resumed.
        """
        for path, batch in batches(self.folder.path / FOLDER):
            if batch.target == target:
                is_gone = artifact.redo and not artifact.provenance.content
                is_used = path.name == artifact.provenance.batch or (is_gone and batch.finished_at)
                return Resume() if is_used else Resume(source=path.name, retry_errors=True)
        return Resume()


def open_context(folder: Folder, options: StepOptions) -> StepContext:
    """Load the plan, the prompt and the settings of a folder; save the llms that flags name for the next step."""
    plan = load_plan(folder)
    prompt = prompt_a(plan)
    if plan.yardstick:
        prompt_file(plan.path.parent / plan.yardstick)  # fails on a missing file before any call is paid for
    settings = options.load_settings(folder, prompt)
    named = {"llm": options.llm, "judge": options.judge, "profile": options.profile}
    flags = {flag: name for flag, name in named.items() if name}
    for name in flags.values():
        find_profile(settings, name)  # fails on a typo, so that it is not saved
    return StepContext(folder, plan, prompt, settings, options.with_saved_flags(save_flags(folder, flags)))


def as_case(test_id: str, inputs: Record) -> Case:
    """Build a case for the engine; `raw` is complete, so that a batch can be resumed."""
    return Case(test_id, inputs, raw={"id": test_id, "inputs": inputs})


async def with_drafter(
    folder: Folder, options: StepOptions, settings: Settings, work: Callable[[Llm], Awaitable[Draft]]
) -> Draft:
    """Await `work` with the drafting llm, whose answers are cached in the folder."""
    name = options.drafter(settings)
    key_of(llm_of(settings, name))
    limits = {
        one: left
        for one, left in options.ledger.remaining(options.run_options).items()
        if one in ("max_cost", "max_tokens")
    }
    llm_options = LlmOptions(use_cache=bool(options.run_options.get("cache", True)), home=folder.path, **limits)
    llms = Llms(settings, llm_options, options.warn)
    try:
        return await work(llms.get(name))
    except CallError as error:
        raise EvalloomError(error.code, f"llm {name!r}: {error.message}") from None
    except BudgetSpent as error:
        raise EvalloomError("stopped", f"stopped: {error}. {_RESUME_HINT}") from None
    finally:
        options.ledger.cost += llms.budget.cost
        options.ledger.tokens += llms.budget.tokens
        await llms.close()
