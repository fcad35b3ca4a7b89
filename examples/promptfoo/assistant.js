// A provider of promptfoo: a class with callApi. This one answers from a list, so that the example needs no key.
const ANSWERS = [
  [/saturday/i, "On Saturday we are open from 9 to 14.", "9 to 14."],
  [/return a ([\w ]+)\?/i, "Yes, you can return a $1 within 30 days.", "Yes: $1, 30 days."],
  [/ship to (\w+)/i, "We ship to $1 for 6 €.", "$1: 6 €."],
  [/中文/, "可以，我们用中文回答。", "可以。"],
];

module.exports = class Assistant {
  constructor(options) {
    this.terse = Boolean(options.config && options.config.terse);
  }

  id() {
    return "assistant";
  }

  async callApi(prompt) {
    const question = prompt.trim().startsWith("[") ? JSON.parse(prompt).at(-1).content : prompt.trim().split("\n").at(-1);
    for (const [pattern, long, short] of ANSWERS) {
      const match = question.match(pattern);
      if (match) return { output: (this.terse ? short : long).replace("$1", match[1] ?? "") };
    }
    return { error: `no answer to ${question}` };
  }
};
