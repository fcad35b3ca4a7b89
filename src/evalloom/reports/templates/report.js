"use strict";
// Shows the runs of a report: a table with filter, search and sort, and one run with its diff, steps and messages.
// The data is in script elements that do not run. Texts only ever become text nodes.
(async () => {
  const PAGE = 50;
  const LARGEST_DIFF = 4_000_000;
  const INVISIBLE = /[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]|[\u{e0000}-\u{e007f}]/gu;

  // -- data, language, elements ------------------------------------------------------------------------

  const read = async (id) => {
    const text = document.getElementById(id).textContent;
    if (document.getElementById(id).type === "application/json") return JSON.parse(text);
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return JSON.parse(await new Response(stream).text());
  };
  const index = await read("index");
  const {runs, statuses, profiles, tags, causes, changes, starts, phrases} = index;
  const total = runs.id.length;

  const t = (phrase, values = {}) => (phrases[phrase] || phrase).replace(/\{(\w+)\}/g, (_, name) => values[name]);
  const format = new Intl.NumberFormat(index.language);
  const moment = new Intl.DateTimeFormat(index.language, {dateStyle: "medium", timeStyle: "medium"});
  const short = (number) => Number(number.toPrecision(3)).toString();
  const seconds = (value) => {
    if (value >= 1) return t("{n} s", {n: value >= 100 ? value.toFixed(0) : short(value)});
    return t("{n} ms", {n: short(value * 1000)});
  };
  const visible = (text) =>
    text.replace(/\r\n/g, "\n").replace(INVISIBLE, (sign) => "\\u" + sign.codePointAt(0).toString(16).padStart(4, "0"));
  const element = (name, attributes = {}, ...content) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...content.flat(Infinity).filter((part) => part !== "" && part !== null && part !== undefined));
    return made;
  };
  const user = (text, kind = "user") => element("span", {class: kind, dir: "auto"}, visible(text));
  const status = (number) => element("span", {class: `status ${statuses[number][0]}`}, statuses[number][1]);

  // -- state: what is shown is in the address ----------------------------------------------------------

  const form = document.getElementById("filter");
  const dialog = document.getElementById("run");
  const fields = ["text", "profile", "tag", "cause", "change"];
  const state = {status: "", text: "", profile: "", tag: "", cause: "", change: "", whole: "", sort: "", page: "", run: ""};
  let shown = [];
  let wholeTexts = null;

  const remember = (isStep) => {
    const kept = new URLSearchParams(Object.entries(state).filter(([, value]) => value));
    const address = "#" + (kept.toString() || "runs");
    if (address === location.hash) return;
    if (isStep) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  };
  const change = (changed, isStep = false) => {
    Object.assign(state, changed);
    const isRun = "run" in changed;
    if (!("page" in changed) && !isRun) state.page = "";
    remember(isStep);
    if (isRun) showRun();
    else update();
  };
  const follow = async () => {
    const hash = location.hash.slice(1);
    if (!hash.includes("=")) {
      if (state.run) { state.run = ""; showRun(); }
      return;
    }
    const wanted = new URLSearchParams(hash);
    const isLink = wanted.size === 1 && wanted.has("run");
    // A link to one run keeps the filter; any other address replaces it.
    for (const name of Object.keys(state)) if (!isLink || name === "run") state[name] = wanted.get(name) || "";
    // A tag that no run has would show nothing without saying why.
    if (!tags.includes(state.tag)) state.tag = "";
    if (!profiles.includes(state.profile)) state.profile = "";
    if (isLink) {
      remember(false);
      showRun();
      return;
    }
    if (state.whole && !wholeTexts) await loadWholeTexts();
    update();
    if (!state.run) document.getElementById("runs").scrollIntoView();
  };

  // -- filter, search, sort ----------------------------------------------------------------------------

  const texts = [];
  const textOf = (number) => {
    if (wholeTexts && state.whole) return wholeTexts[number];
    if (texts[number] === undefined) {
      const parts = [runs.id[number], runs.input[number], runs.output[number], runs.reason[number]];
      texts[number] = parts.concat(runs.tags[number].map((tag) => tags[tag])).join("\n").toLowerCase();
    }
    return texts[number];
  };
  const words = () => state.text.toLowerCase().split(/\s+/).filter(Boolean);
  // The runs that fit everything but the status, whose chips show how many there are of each.
  const matching = () => {
    const wanted = words();
    const profile = profiles.indexOf(state.profile);
    const tag = tags.indexOf(state.tag);
    const found = [];
    for (let number = 0; number < total; number += 1) {
      if (profile >= 0 && runs.profile[number] !== profile) continue;
      if (tag >= 0 && !runs.tags[number].includes(tag)) continue;
      if (state.cause && runs.cause[number] !== Number(state.cause)) continue;
      if (state.change && runs.change[number] !== state.change) continue;
      if (wanted.length && !wanted.every((word) => textOf(number).includes(word))) continue;
      found.push(number);
    }
    return found;
  };
  const SORTED = {
    status: (number) => runs.status[number], case: (number) => runs.id[number],
    profile: (number) => profiles[runs.profile[number]], score: (number) => runs.score[number],
    seconds: (number) => runs.seconds[number], tokens: (number) => runs.tokens[number], cost: (number) => runs.cost[number],
  };
  const sort = (found) => {
    const valueOf = SORTED[state.sort.replace("-", "")];
    if (!valueOf) return found;
    const sign = state.sort.startsWith("-") ? -1 : 1;
    const collator = new Intl.Collator(index.language, {numeric: true});
    return found.sort((one, other) => {
      const [a, b] = [valueOf(one), valueOf(other)];
      if (a === null || b === null) return (a === null) - (b === null) || one - other;
      return sign * (typeof a === "string" ? collator.compare(a, b) : a - b) || one - other;
    });
  };
  const textsIn = (value) => {
    if (typeof value === "string") return value;
    return value && typeof value === "object" ? Object.values(value).map(textsIn).join("\n") : String(value);
  };
  const loadWholeTexts = async () => {
    const loaded = [];
    for (let chunk = 0; chunk < starts.length; chunk += 1) {
      for (const run of await details(chunk)) loaded.push(`${textOf(loaded.length)}\n${textsIn(run).toLowerCase()}`);
    }
    wholeTexts = loaded;
  };

  // -- the table ---------------------------------------------------------------------------------------

  const highlighted = (text, kind) => {
    const wanted = words().map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    const clean = visible(text);
    if (!wanted.length) return element("span", {class: kind, dir: "auto"}, clean);
    const parts = clean.split(new RegExp(`(${wanted.join("|")})`, "gi"));
    return element("span", {class: kind, dir: "auto"}, parts.map((part, at) => (at % 2 ? element("mark", {}, part) : part)));
  };
  const hasProfiles = profiles.length > 1 || Boolean(profiles[0]);
  const columns = [
    ["status", t("Status"), "c-status"], ["case", t("Case"), "c-case"],
    ...(hasProfiles ? [["profile", t("Profile"), "c-profile"]] : []),
    ["", t("Reason and output"), ""], ["score", t("Score"), "c-number number"], ["seconds", t("Time"), "c-number number"],
    ["tokens", t("Tokens"), "c-number number"], ...(runs.cost.some(Boolean) ? [["cost", t("Cost"), "c-number number"]] : []),
  ];
  const head = () => element("thead", {}, element("tr", {}, columns.map(([name, title, kind]) => {
    if (!name) return element("th", {scope: "col", class: kind}, title);
    const [sorted, isDown] = [state.sort.replace("-", "") === name, state.sort.startsWith("-")];
    const next = !sorted ? name : isDown ? "" : `-${name}`;
    const button = element("button", {type: "button", onclick: () => change({sort: next})}, title);
    return element("th", {scope: "col", class: kind, "aria-sort": sorted ? (isDown ? "descending" : "ascending") : false}, button);
  })));
  const nameOf = (number) => runs.id[number] + (runs.repeat[number] ? ` · ${t("repeat {n}", {n: runs.repeat[number] + 1})}` : "");
  const row = (number) => {
    const cell = (label, text) => element("td", {class: "number", "data-label": text === "" ? false : label}, text);
    const open = () => change({run: String(number)}, true);
    return element("tr", {onclick: (event) => { if (!event.target.closest("button") && !String(getSelection())) open(); }},
      element("td", {class: "c-status"}, status(runs.status[number])),
      element("th", {scope: "row"}, element("button", {type: "button", class: "open", onclick: open}, highlighted(nameOf(number), "user")),
        highlighted(runs.input[number], "clamp input")),
      hasProfiles ? element("td", {class: "c-profile"}, user(profiles[runs.profile[number]])) : "",
      element("td", {}, runs.reason[number] ? highlighted(runs.reason[number], "clamp reason") : "",
        runs.reason[number].endsWith(runs.output[number]) ? "" : highlighted(runs.output[number], "clamp")),
      cell(t("Score"), runs.score[number] === null ? "" : short(runs.score[number])), cell(t("Time"), seconds(runs.seconds[number])),
      cell(t("Tokens"), runs.tokens[number] ? format.format(runs.tokens[number]) : ""),
      columns.at(-1)[0] === "cost" ? cell(t("Cost"), runs.cost[number] ? short(runs.cost[number]) : "") : "");
  };
  const showTable = (fitting) => {
    const kind = statuses.findIndex(([name]) => name === state.status);
    shown = sort(kind < 0 ? fitting : fitting.filter((number) => runs.status[number] === kind));
    const pages = Math.max(1, Math.ceil(shown.length / PAGE));
    const page = Math.min(Math.max(1, Number(state.page) || 1), pages);
    const body = element("tbody", {}, shown.slice((page - 1) * PAGE, page * PAGE).map(row));
    const nothing = element("p", {id: "nothing"}, total ? t("No run fits the filter.") : t("There are no runs."));
    document.getElementById("table").replaceChildren(shown.length ? element("table", {}, head(), body) : nothing);
    document.getElementById("count").textContent =
      t("{shown} of {total} runs", {shown: format.format(shown.length), total: format.format(total)});
    const turn = (title, to) => element("button", {type: "button", disabled: to < 1 || to > pages, onclick: () => {
      change({page: String(to)});
      form.scrollIntoView();
    }}, title);
    const where = t("page {page} of {pages}", {page: format.format(page), pages: format.format(pages)});
    const nav = document.getElementById("pages");
    nav.hidden = pages < 2;
    nav.replaceChildren(turn(t("Previous"), page - 1), element("span", {class: "soft"}, where), turn(t("Next"), page + 1));
  };
  const showFilter = (fitting) => {
    const counts = new Map();
    for (const number of fitting) counts.set(runs.status[number], (counts.get(runs.status[number]) || 0) + 1);
    const chip = (name, label, count) => element("button", {type: "button", "aria-pressed": String(state.status === name),
      onclick: () => { change({status: name}); form.querySelector("[aria-pressed=true]").focus(); }},
      label, element("span", {class: "number"}, format.format(count)));
    form.querySelector(".chips").replaceChildren(chip("", t("All"), fitting.length), ...statuses.flatMap(([name], kind) =>
      runs.status.includes(kind) ? [chip(name, status(kind), counts.get(kind) || 0)] : []));
    for (const name of fields) if (form.elements[name].value !== state[name]) form.elements[name].value = state[name];
    form.elements.whole.checked = Boolean(state.whole);
  };
  const fillChoices = (name, choices) => {
    const field = form.elements[name];
    const options = choices.map(([value, label]) => element("option", {value}, visible(label.length > 70 ? label.slice(0, 69) + "…" : label)));
    field.replaceChildren(element("option", {value: ""}, t("all")), ...options);
    field.closest("label").hidden = choices.length < (name === "profile" ? 2 : 1);
  };

  // -- differences -------------------------------------------------------------------------------------

  const pieces = (text, pattern) => text.match(pattern) || [];
  const BY_WORD = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]|[\p{L}\p{N}_]+|\s+|[^]/gu;
  const BY_LINE = /[^\n]*\n|[^\n]+/g;
  const compare = (before, after) => {
    for (const pattern of [BY_WORD, BY_LINE]) {
      const [old, now] = [pieces(before, pattern), pieces(after, pattern)];
      let start = 0;
      while (start < old.length && start < now.length && old[start] === now[start]) start += 1;
      let end = 0;
      while (end < old.length - start && end < now.length - start && old.at(-1 - end) === now.at(-1 - end)) end += 1;
      const [a, b] = [old.slice(start, old.length - end), now.slice(start, now.length - end)];
      if (a.length * b.length > LARGEST_DIFF) continue;
      return [["same", old.slice(0, start).join("")], ...common(a, b), ["same", old.slice(old.length - end).join("")]];
    }
    return [["del", before], ["ins", after]];
  };
  // The longest common subsequence, by the textbook table.
  const common = (a, b) => {
    const width = b.length + 1;
    const lengths = new Uint16Array((a.length + 1) * width);
    for (let i = a.length - 1; i >= 0; i -= 1) {
      for (let j = b.length - 1; j >= 0; j -= 1) {
        lengths[i * width + j] = a[i] === b[j] ? lengths[(i + 1) * width + j + 1] + 1
          : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
      }
    }
    const parts = [];
    const add = (kind, text) => (parts.length && parts.at(-1)[0] === kind ? (parts.at(-1)[1] += text) : parts.push([kind, text]));
    let [i, j] = [0, 0];
    while (i < a.length || j < b.length) {
      if (i < a.length && j < b.length && a[i] === b[j]) { add("same", a[i]); i += 1; j += 1; }
      else if (j === b.length || (i < a.length && lengths[(i + 1) * width + j] >= lengths[i * width + j + 1])) { add("del", a[i]); i += 1; }
      else { add("ins", b[j]); j += 1; }
    }
    return parts;
  };
  const sides = (before, after, titles) => {
    const parts = compare(visible(before), visible(after));
    const side = (kind, title) => element("div", {}, element("h4", {}, title), element("div", {class: "side", dir: "auto", tabindex: "0", role: "group", "aria-label": title},
      parts.filter(([one, text]) => text && (one === "same" || one === kind)).map(([one, text]) => (one === "same" ? text : element(one, {}, text)))));
    return element("div", {class: "sides"}, side("del", titles[0]), side("ins", titles[1]));
  };

  // -- one run -----------------------------------------------------------------------------------------

  const loaded = new Map();
  const whenParsed = new Promise((resolve) => {
    if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", resolve);
    else resolve();
  });
  const details = async (chunk) => {
    await whenParsed;
    if (!loaded.has(chunk)) loaded.set(chunk, read(`run-${chunk}`));
    return loaded.get(chunk);
  };
  const detailOf = async (number) => {
    let chunk = starts.length - 1;
    while (starts[chunk] > number) chunk -= 1;
    return (await details(chunk))[number - starts[chunk]];
  };
  const plain = (value) => {
    if (!("v" in value)) return value.t;
    return typeof value.v === "string" ? value.v : JSON.stringify(value.v, null, 2);
  };
  // The answer of a model is a text, also where it is JSON. Only what stays the same but for white space is indented.
  const indented = (text) => {
    if (!/^\s*[[{]/.test(text)) return text;
    try {
      const parsed = JSON.parse(text);
      const dense = (one) => one.replace(/\s/g, "");
      return dense(JSON.stringify(parsed)) === dense(text) ? JSON.stringify(parsed, null, 2) : text;
    } catch {
      return text;
    }
  };
  const cutNote = (value) => (value.more ? element("span", {class: "cut"},
    t("{n} more characters are left out here; the whole is in {path}/runs.jsonl", {n: format.format(value.more), path: visible(index.path)})) : "");
  const box = (value, label) => {
    const text = indented(plain(value));
    const shownText = text === "" ? element("span", {class: "soft"}, t("(an empty text)")) : visible(text);
    return [element("div", {class: "output", dir: "auto", tabindex: "0", role: "group", "aria-label": label}, shownText), cutNote(value)];
  };
  const named = (title, entries) => (entries && entries.length ? element("div", {}, element("h3", {}, title), entries.map(([name, value]) =>
    [element("h4", {}, visible(name)), ...box(value, `${title}: ${name}`)])) : "");
  const checkOf = (check) => {
    const kind = statuses.findIndex(([name]) => name === check.status);
    const about = [check.kind === check.name ? "" : check.kind, check.where,
      check.score === undefined || check.score === null ? "" : t("score {n}", {n: short(check.score)}),
      check.counts === "0" ? t("does not count") : "",
      check.follows ? t("follows from step {step}", {step: check.follows}) : ""].filter(Boolean).join(" · ");
    return element("div", {class: "check"}, status(kind), " ", element("b", {}, visible(check.name || "")), " ", element("span", {class: "soft"}, visible(about)),
      check.reason ? element("p", {class: "why"}, user(check.reason)) : "",
      (check.differences || []).map(([path, expected, actual]) => element("div", {class: "difference"},
        path && check.differences.length > 1 ? element("code", {}, visible(path)) : "",
        sides(plain(expected), plain(actual), [t("Expected"), t("Actual")]), cutNote(expected), cutNote(actual))));
  };
  const callOf = (call) => {
    const facts = [call.seconds === undefined ? "" : seconds(call.seconds),
      call.input_tokens || call.output_tokens ? t("{n} tokens", {n: `${format.format(call.input_tokens || 0)} + ${format.format(call.output_tokens || 0)}`}) : "",
      call.cached ? t("from the cache") : "", call.stop ? t("stopped: {why}", {why: call.stop}) : ""].filter(Boolean).join(" · ");
    const title = call.call === "llm" ? t("Model call {llm}", {llm: call.llm}) : call.call;
    return element("details", {class: call.error ? "step bad" : "step"}, element("summary", {}, element("b", {}, visible(title)), " ", element("span", {class: "soft"}, visible(facts))),
      call.error ? element("p", {class: "clamp reason"}, user(call.error)) : "",
      (call.messages || []).map(([role, value]) => [element("span", {class: "role"}, visible(role === "answer" ? t("answer") : role)), ...box(value, role)]),
      call.fields ? box(call.fields, title) : "");
  };
  const stepOf = (step, longest) => {
    if (step.call) return callOf(step);
    const facts = [step.kind, step.status, step.seconds === undefined ? "" : seconds(step.seconds),
      step.tokens ? t("{n} tokens", {n: format.format(step.tokens)}) : "", step.items ? t("{n} items", {n: format.format(step.items)}) : "",
      step.failed_items ? t("{n} failed items", {n: format.format(step.failed_items)}) : "",
      step.retry_count ? t("{n} retries", {n: format.format(step.retry_count)}) : ""].filter(Boolean).join(" · ");
    const bar = element("span", {class: "time"});
    bar.style.width = `${longest ? (8 * (step.seconds || 0)) / longest : 0}rem`;
    return element("details", {class: step.error ? "step bad" : "step", open: Boolean(step.error)},
      element("summary", {}, element("b", {}, visible(step.name)), " ", element("span", {class: "soft"}, visible(facts)), bar),
      step.error ? element("p", {class: "clamp reason"}, user(step.error)) : "",
      step.output ? box(step.output, step.name) : "", (step.calls || []).map(callOf));
  };
  const beforeOf = (number, run) => {
    if (!run.before) return "";
    const [before] = run.before;
    const actual = run.output || {v: run.error || run.skipped || run.blocked || ""};
    return element("div", {}, element("h3", {}, t("Before and now"), " ", status(before.status), " → ", status(runs.status[number])),
      before.reason ? element("p", {class: "soft"}, t("before: {reason}", {reason: visible(before.reason)})) : "",
      sides(plain(before.output), plain(actual), [t("Output before"), t("Output now")]), cutNote(before.output), cutNote(actual));
  };
  const factsOf = (number, run) => {
    const [calls, sent, received, cached, retries] = run.usage || [];
    const facts = [[t("Profile"), profiles[runs.profile[number]]], [t("Time"), seconds(run.seconds || 0)],
      [t("Model calls"), calls ? format.format(calls) : ""],
      [t("Tokens"), sent || received ? `${format.format(sent)} + ${format.format(received)}` : ""],
      [t("Tokens of the judge"), run.judged ? format.format(run.judged) : ""],
      [t("Cost"), runs.cost[number] ? short(runs.cost[number]) : ""], [t("From the cache"), cached || ""], [t("Retries"), retries || ""],
      [t("Score"), runs.score[number] === null ? "" : short(runs.score[number])], [t("Outcome"), run.outcome || ""],
      [t("First failing step"), run.step || ""], [t("Tags"), runs.tags[number].map((tag) => tags[tag]).join(", ")],
      [t("Change"), changes[runs.change[number]] || ""], [t("Started"), run.started ? moment.format(new Date(run.started)) : ""], [t("Place"), run.origin || ""]];
    return element("dl", {class: "facts"}, facts.filter(([, text]) => text !== "").map(([title, text]) =>
      element("div", {}, element("dt", {}, title), element("dd", {}, user(String(text))))));
  };
  const showRun = async () => {
    const number = state.run === "" ? -1 : Number(state.run);
    if (!(number >= 0 && number < total)) {
      if (dialog.open) dialog.close();
      return;
    }
    const run = await detailOf(number);
    if (Number(state.run) !== number) return; // meanwhile another one was opened
    const list = shown.includes(number) ? shown : runs.id.map((_, at) => at);
    const at = list.indexOf(number);
    const go = (step) => () => { if (list[at + step] !== undefined) change({run: String(list[at + step])}); };
    const button = (title, onclick, disabled = false) => element("button", {type: "button", onclick, disabled}, title);
    const longest = Math.max(0, ...(run.steps || []).map((step) => step.seconds || 0));
    const problem = run.error || run.skipped || run.blocked;
    dialog.replaceChildren(
      element("div", {class: "bar"}, button(t("Previous"), go(-1), at === 0), button(t("Next"), go(1), at === list.length - 1),
        element("span", {class: "soft"}, t("{n} of {total}", {n: format.format(at + 1), total: format.format(list.length)})),
        element("span", {class: "space"}), button(t("Close"), () => dialog.close())),
      element("div", {class: "body"},
        element("h2", {id: "run-title", tabindex: "-1", autofocus: true}, user(nameOf(number)), " ", status(runs.status[number])), factsOf(number, run),
        problem ? [element("h3", {}, statuses[runs.status[number]][1]), ...box({v: problem}, statuses[runs.status[number]][1])] : "",
        run.checks ? element("div", {}, element("h3", {}, t("Checks")), run.checks.map(checkOf)) : "",
        beforeOf(number, run),
        element("div", {class: "pair"},
          element("div", {}, named(t("Input"), run.input), named(t("Expected"), run.expected)),
          element("div", {}, run.output ? [element("h3", {}, t("Output")), ...box(run.output, t("Output"))] : "",
            run.sources ? [element("h3", {}, t("Sources")), run.sources.map((source) => box(source, t("Sources")))] : "")),
        run.steps ? element("div", {}, element("h3", {}, t("Steps and model calls")), run.steps.map((step) => stepOf(step, longest))) : "",
        run.dropped ? element("p", {class: "cut"}, t("To keep the file small, parts of this run are left out; the whole is in {path}/runs.jsonl", {path: visible(index.path)})) : ""));
    dialog.onkeydown = (event) => {
      if (event.target.closest("input, select, [tabindex]") || event.altKey || event.ctrlKey || event.metaKey) return;
      if (event.key === "ArrowLeft" || event.key === "k") go(-1)();
      if (event.key === "ArrowRight" || event.key === "j") go(1)();
    };
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
  };

  // -- start -------------------------------------------------------------------------------------------

  const update = () => {
    const fitting = matching();
    showFilter(fitting);
    showTable(fitting);
    showRun();
  };
  fillChoices("profile", profiles.map((name) => [name, name || "–"]));
  fillChoices("tag", tags.map((name) => [name, name]));
  fillChoices("cause", causes.map((title, number) => [String(number), title]));
  fillChoices("change", Object.entries(changes).filter(([kind]) => runs.change.includes(kind)));
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", async () => {
    const wanted = Object.fromEntries(fields.map((name) => [name, form.elements[name].value]));
    wanted.whole = form.elements.whole.checked ? "1" : "";
    if (wanted.whole && !wholeTexts) await loadWholeTexts();
    change(wanted);
  });
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    change({status: "", text: "", profile: "", tag: "", cause: "", change: "", whole: ""});
  });
  dialog.addEventListener("close", () => { if (state.run) change({run: ""}); });
  window.addEventListener("hashchange", follow);
  window.addEventListener("popstate", follow);
  update();
  follow();
  // Prepared while nobody waits, so that the first search is as quick as the others.
  const prepare = (from) => {
    for (let number = from; number < Math.min(from + 1000, total); number += 1) textOf(number);
    if (from + 1000 < total) setTimeout(prepare, 10, from + 1000);
  };
  setTimeout(prepare, 100, 0);
})();
