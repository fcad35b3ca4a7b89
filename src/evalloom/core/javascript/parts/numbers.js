// Intl.NumberFormat, Intl.DateTimeFormat and the toLocale… methods, for common languages; other languages are refused.
(function () {
  "use strict";
  const NARROW = "\u202f", SPACE = "\u00a0";
  const STYLES = {
    en: { group: ",", point: ".", percent: "%", money: "$n" }, zh: { group: ",", point: ".", percent: "%", money: "$n" },
    ja: { group: ",", point: ".", percent: "%", money: "$n" }, pt: { group: ".", point: ",", percent: "%", money: "$" + SPACE + "n" },
    de: { group: ".", point: ",", percent: SPACE + "%", money: "n" + SPACE + "$" },
    it: { group: ".", point: ",", percent: "%", money: "n" + SPACE + "$", least: 2 },
    es: { group: ".", point: ",", percent: SPACE + "%", money: "n" + SPACE + "$", least: 2 },
    fr: { group: NARROW, point: ",", percent: SPACE + "%", money: "n" + SPACE + "$" },
    ru: { group: SPACE, point: ",", percent: SPACE + "%", money: "n" + SPACE + "$" },
  };
  const SIGNS = { USD: "$", EUR: "€", GBP: "£", JPY: "¥", CNY: "CN¥", INR: "₹", KRW: "₩", BRL: "R$", CAD: "CA$", AUD: "A$", MXN: "MX$" };
  const ABROAD = { USD: "US$", JPY: "JP¥" };
  const codes = (...names) => Object.fromEntries(names.map((name) => [name, name]));
  // Where a language writes another sign than the one above.
  const AT_HOME = { "en-GB": ABROAD, zh: { ...ABROAD, CNY: "¥", AUD: "AU$" }, ja: { JPY: "￥", CNY: "元" }, de: { AUD: "AU$" },
    pt: { ...ABROAD, AUD: "AU$" }, it: codes("USD", "JPY", "INR", "KRW", "BRL", "MXN"),
    fr: { ...codes("JPY", "CNY"), USD: "$US", GBP: "£GB", CAD: "$CA", AUD: "$AU", MXN: "$MX" },
    es: { ...codes("GBP", "JPY", "CNY", "INR", "KRW", "BRL", "CAD", "AUD", "MXN"), USD: "US$" } };
  const KNOWN = ["en-US", "en-GB", "zh-CN", "ja-JP", "pt-BR", "de-DE", "it-IT", "es-ES", "fr-FR", "ru-RU"];
  const WHOLE = ["JPY", "KRW"];

  function languageOf(locales) {
    const locale = String((Array.isArray(locales) ? locales[0] : locales) ?? "en-US");
    if (!/^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$/i.test(locale)) throw new RangeError("Incorrect locale information provided: " + locale);
    const language = locale.slice(0, 2).toLowerCase();
    if (!STYLES[language] || (locale !== language && !KNOWN.includes(locale)))
      throw new RangeError(`the locale ${locale} is not known here; known are ${KNOWN.join(", ")}`);
    return { locale, language, style: STYLES[language] };
  }

  function grouped(digits, style) {
    if (digits.length < 3 + (style.least ?? 1)) return digits;
    return digits.replace(/\B(?=(\d{3})+$)/g, style.group);
  }

  // Decimal digits of a number, rounded half away from zero as Intl does: of the shortest decimal text, not of the double.
  function rounded(value, most) {
    let [head, power] = value.toString().split("e");
    let [whole, part = ""] = head.split(".");
    const shift = Number(power ?? 0);
    if (shift > 0) { part = part.padEnd(shift, "0"); whole += part.slice(0, shift); part = part.slice(shift); }
    if (shift < 0) { whole = whole.padStart(1 - shift, "0"); part = whole.slice(shift) + part; whole = whole.slice(0, shift); }
    if (part.length <= most) return [whole.replace(/^0+(?=\d)/, ""), part];
    const up = part[most] >= "5";
    let digits = BigInt(whole + part.slice(0, most));
    if (up) digits += 1n;
    const text = digits.toString().padStart(most + 1, "0");
    return most ? [text.slice(0, -most), text.slice(-most)] : [text, ""];
  }

  class NumberFormat {
    #options;
    constructor(locales, options = {}) {
      const { locale, language, style } = languageOf(locales);
      const kind = options.style ?? "decimal", currency = options.currency?.toUpperCase();
      if (!["decimal", "percent", "currency"].includes(kind)) throw new RangeError(`NumberFormat: the style ${kind} is not known here`);
      if (kind === "currency" && !currency) throw new TypeError("Currency code is required with currency style.");
      const unknown = ["notation", "unit", "maximumSignificantDigits", "minimumSignificantDigits", "signDisplay", "roundingMode"].find(
        (name) => options[name] !== undefined && !["standard", "auto"].includes(options[name]));
      if (unknown) throw new RangeError(`NumberFormat: the option ${unknown} is not known here`);
      const usual = kind === "currency" ? (WHOLE.includes(currency) ? [0, 0] : [2, 2]) : kind === "percent" ? [0, 0] : [0, 3];
      let least = options.minimumFractionDigits, most = options.maximumFractionDigits;
      least ??= Math.min(usual[0], most ?? usual[0]);
      most ??= Math.max(usual[1], least);
      if (!(least >= 0 && most <= 100 && least <= most)) throw new RangeError("maximumFractionDigits value is out of range.");
      this.#options = { locale, language, style, kind, currency, least, most, group: options.useGrouping !== false && options.useGrouping !== "false",
        integers: options.minimumIntegerDigits ?? 1, display: options.currencyDisplay ?? "symbol" };
      this.format = (value) => this.#format(value);
    }
    #format(value) {
      const { style, kind, least, most, group, integers } = this.#options;
      const exact = typeof value === "bigint" ? value : Number(value);
      if (exact !== exact) return "NaN";
      const negative = exact < 0 || Object.is(exact, -0);
      let size = negative ? -exact : exact;
      if (kind === "percent") size = typeof size === "bigint" ? size * 100n : Number((size + "e2").replace(/e(.*)e2$/, (_, power) => "e" + (Number(power) + 2)));
      let text = "∞";
      if (size !== Infinity) {
        let [whole, part] = rounded(size, most);
        part = part.replace(/0+$/, "").padEnd(least, "0");
        whole = whole.padStart(integers, "0");
        text = (group ? grouped(whole, style) : whole) + (part ? style.point + part : "");
      }
      if (kind === "percent") text += style.percent;
      if (kind === "currency") text = style.money.replace("n", () => text).replace("$", () => this.#sign());
      return (negative ? "-" : "") + text;
    }
    #sign() {
      const { locale, language, currency, style, display } = this.#options;
      const sign = display === "code" ? currency : AT_HOME[locale]?.[currency] ?? AT_HOME[language]?.[currency] ?? SIGNS[currency] ?? currency;
      return /[A-Z元]$/.test(sign) && style.money.startsWith("$n") ? sign + SPACE : sign;
    }
    resolvedOptions() {
      const { locale, kind, currency, least, most } = this.#options;
      return { locale, numberingSystem: "latn", style: kind, currency, minimumFractionDigits: least, maximumFractionDigits: most };
    }
  }

  class DateTimeFormat {
    constructor(locales, options = {}) {
      const { locale } = languageOf(locales);
      const wanted = Object.keys(options).filter((name) => name !== "timeZone" && options[name] !== undefined);
      if (locale !== "en-US" || wanted.length || ![undefined, "UTC"].includes(options.timeZone))
        throw new RangeError("DateTimeFormat: only en-US without options is known here; use toISOString()");
      this.format = (date) => {
        const day = new Date(date ?? Date.now());
        return `${day.getUTCMonth() + 1}/${day.getUTCDate()}/${day.getUTCFullYear()}`;
      };
    }
    resolvedOptions() { return { locale: "en-US", calendar: "gregory", numberingSystem: "latn", timeZone: "UTC" }; }
  }

  const make = (Kind) => new Proxy(Kind, { apply: (kind, self, values) => new kind(...values) });
  globalThis.Intl = { NumberFormat: make(NumberFormat), DateTimeFormat: make(DateTimeFormat) };
  function method(owner, name, value) {
    Object.defineProperty(owner, name, { value, writable: true, configurable: true, enumerable: false });
  }
  method(Number.prototype, "toLocaleString", function toLocaleString(locales, options) {
    return new NumberFormat(locales, options).format(Number(this));
  });
  method(BigInt.prototype, "toLocaleString", function toLocaleString(locales, options) {
    return new NumberFormat(locales, options).format(BigInt(this));
  });
  method(Date.prototype, "toLocaleDateString", function toLocaleDateString(locales, options) {
    return new DateTimeFormat(locales, options).format(this);
  });
})
