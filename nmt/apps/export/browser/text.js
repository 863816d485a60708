// Text: cleaning and sentences, as nmt/data/lines.py, unicode.py and sentences.py have them.
// RULES has their patterns, word lists and character classes; indices are those of UTF-16.

const classOf = (ranges) => `[${ranges}]`;
const CHARACTERS = Object.fromEntries(Object.entries(RULES.characters)
  .map(([name, ranges]) => [name, new RegExp(classOf(ranges), "u")]));
const is = (name, character) => CHARACTERS[name].test(character);

// A pattern that is searched, matched at a place, or compared with a whole text.
class Pattern {
  constructor({parts, flags}) {
    const source = parts.map((part) => typeof part === "number" ? classOf(RULES.classes[part]) : part).join("");
    this.everywhere = new RegExp(source, flags + "g");
    this.here = new RegExp(source, flags + "y");
    this.whole = new RegExp(`^(?:${source})$`, flags);
  }
  at(text, place = 0) {
    this.here.lastIndex = place;
    return this.here.exec(text);
  }
}

function rulesOf(tables) {
  return Object.fromEntries(Object.entries(tables).map(([name, value]) => [name,
    Array.isArray(value) ? new Set(value) : value?.parts ? new Pattern(value) : value]));
}

const LINES = rulesOf(RULES.lines), FORM = rulesOf(RULES.unicode), ENDS = rulesOf(RULES.sentences);
const characterAt = (text, place) => place < text.length ? String.fromCodePoint(text.codePointAt(place)) : "";
const characterBefore = (text, place) => /.?$/us.exec(text.slice(Math.max(0, place - 2), place))[0];

// ---------------------------------------------------------------- lines (nmt/data/lines.py)

const cleanLine = (line) => line.replace(LINES.CONTROL.everywhere, " ");

function isBlank(line) {
  for (const character of line) if (!is("BLANK", character)) return false;
  return true;
}

const lengthOf = (text) => { let count = 0; for (const _ of text) count++; return count; };
const isTooLong = (line) =>
  line.length > LINES.LONGEST_SENTENCE && lengthOf(line) > LINES.LONGEST_SENTENCE && !isBlank(line);

function words(line) { // as str.split() of Python
  const found = [];
  let word = "";
  for (const character of line) {
    if (!is("SPACE", character)) word += character;
    else if (word) { found.push(word); word = ""; }
  }
  if (word) found.push(word);
  return found;
}

// ---------------------------------------------------------------- Unicode form (nmt/text/unicode.py)

function normalize(text, form) {
  if (form === "none") return text;
  const nfc = bounded(text).normalize("NFC");
  if (form === "nfc" || nfc.search(FORM.ANY.everywhere) < 0) return nfc;
  return bounded(withoutShapeless(nfc)).normalize("NFC");
}

function bounded(text) { // at most MOST_MARKS marks on a letter
  let kept = "", marks = 0;
  for (const character of text) {
    marks = is("COMBINING", character) ? marks + 1 : 0;
    if (marks <= FORM.MOST_MARKS) kept += character;
  }
  return kept;
}

function withoutShapeless(text) {
  const seen = text.replace(FORM.DROP.everywhere, "").replace(FORM.SPACE.everywhere, " ");
  let result = "", base = "\n", end = 0;
  for (const run of seen.matchAll(FORM.RUN.everywhere)) {
    const between = seen.slice(end, run.index);
    for (const character of between) if (!is("MARK", character)) base = character;
    end = run.index + run[0].length;
    result += between;
    const kept = new Set();
    for (const character of run[0]) {
      const mayRepeat = character === FORM.TATWEEL || isTag(character);
      if ((kept.has(character) && !mayRepeat) || !stays(character, base, characterAt(seen, end))) continue;
      kept.add(character);
      result += character;
    }
  }
  return result + seen.slice(end);
}

const isTag = (character) => character >= "\u{e0020}" && character <= "\u{e007f}";

// Whether a character stays after the letter or symbol `base` and before `after`.
function stays(character, base, after) {
  const left = scriptOf(base), right = scriptOf(after);
  const inside = left && right, joins = FORM.JOINING.has(left) || FORM.JOINING.has(right);
  if (character === FORM.TATWEEL)
    return !(left === "ARABIC" && right === "ARABIC" && is("ALPHA", after));
  if (character === FORM.ZWSP) return inside && (FORM.UNSPACED.has(left) || FORM.UNSPACED.has(right));
  if (character === FORM.ZWNJ) return inside && joins;
  if (character === FORM.ZWJ) return joins || (is("SYMBOL", base) && is("SYMBOL", after));
  if (/[\ufe0e\ufe0f]/.test(character))
    return is("SYMBOL", base) || FORM.EMOJI_SIGNS.includes(base) || after === FORM.KEYCAP;
  if (/[\ufe00-\ufe0d]/.test(character)) return is("SYMBOL", base) || FORM.JOINING.has(left);
  if (/[\u180b-\u180f]/.test(character)) return left === "MONGOLIAN";
  if (/[\u115f\u1160]/.test(character)) return left === "HANGUL" || right === "HANGUL";
  return base === FORM.BLACK_FLAG && isTag(character);
}

// The script of a letter, mark or digit, by its name; "" for other characters.
function scriptOf(character) {
  if (!character) return "";
  const code = character.codePointAt(0), table = RULES.scripts;
  let low = 0, high = table.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (table[middle][1] < code) low = middle + 1; else high = middle;
  }
  return low < table.length && table[low][0] <= code ? table[low][2] : "";
}

// ---------------------------------------------------------------- sentences (nmt/text/sentences.py)

const ESCAPED = {quot: '"', apos: "'", amp: "&", lt: "<", gt: ">"};

// Split a line after each sentence; the parts have the white space behind them.
function splitSentences(line, lang, abbreviations) {
  const plain = line.replace(ENDS.ESCAPE.everywhere, (escape) => {
    const name = escape.slice(1, -1);
    return (ESCAPED[name] ?? String.fromCodePoint(name.slice(1))).padEnd(escape.length);
  });
  const parts = [];
  let start = 0, letters = 0, counted = 0;
  for (const end of sentenceEnds(plain, lang, abbreviations)) {
    letters += lettersOf(plain.slice(counted, end));
    counted = end;
    if (letters < 2) continue;
    parts.push(line.slice(start, end));
    start = end;
    letters = 0;
  }
  if (letters + lettersOf(plain.slice(counted)) >= 2 || !parts.length) parts.push(line.slice(start));
  else parts[parts.length - 1] += line.slice(start);
  return parts;
}

function lettersOf(text) { // one of a script without capital letters says as much as two others
  let count = 0;
  for (const character of text)
    if (is("ALPHA", character)) count += is("CASELESS", character) ? 2 : 1;
  return count;
}

function* sentenceEnds(text, lang, abbreviations) {
  const {closing, quotes} = quotesOf(text);
  const cased = is("UPPER", text); // a small letter continues a sentence
  const mixed = cased && is("LOWER", text);
  let insideTo = -1, nextQuote = 0;
  for (const mark of text.matchAll(ENDS.MARKS.everywhere)) {
    const start = mark.index, markEnd = start + mark[0].length;
    let after = markEnd, place;
    for (;;) {
      place = after + ENDS.SPACE.at(text, after)[0].length;
      if (!closing.has(place) && !/['’]/.test(text.charAt(after))) break;
      after = closing.has(place) ? Math.max(after, place) + 1 : after + 1;
    }
    while (nextQuote < quotes.length && quotes[nextQuote][0] < start)
      insideTo = Math.max(insideTo, quotes[nextQuote++][1]);
    if (place === text.length) return;
    const closed = after > markEnd, following = characterAt(text, place);
    if (after <= insideTo) continue;
    let isEnd;
    if (place === after) {
      if (closed) isEnd = ENDS.OPENS.has(following);
      else if (!ENDS.BEFORE_SPACE.has(characterBefore(mark[1], mark[1].length)) || mark[1].endsWith("::"))
        isEnd = mark[1] !== "．" || !is("DIGIT", following);
      else isEnd = ENDS.UNSPACED.whole.test(characterBefore(text, start)) &&
        (ENDS.UNSPACED.whole.test(following) || ENDS.OPENS.has(following));
    } else {
      const letter = ENDS.FIRST_LETTER.at(text, place)?.[1];
      isEnd = !((cased && letter && is("LOWER", letter)) ||
        (closed && !ENDS.OPENS.has(following) && is("CASELESS", following)) ||
        (mark[1] === "." && isShort(text, start, letter, mixed, lang, abbreviations)));
    }
    if (isEnd) yield place;
  }
}

// The marks that close a quotation or bracket, and the short ones from mark to mark.
function quotesOf(text) {
  const closing = new Set(), quotes = [], opened = [], counts = new Map();
  const count = (mark, by) => counts.set(mark, (counts.get(mark) ?? 0) + by);
  for (const {0: mark, index: place} of text.matchAll(ENDS.BRACKET.everywhere)) {
    if ("’‘".includes(mark) && is("ALPHA", characterAt(text, place + 1)) &&
        is("ALPHA", characterBefore(text, place))) continue; // an apostrophe
    const openers = ENDS.CLOSES[mark] ?? "";
    if ([...openers].some((opener) => counts.get(opener) > 0)) {
      let opener, begin;
      do {
        [opener, begin] = opened.pop();
        count(opener, -1);
      } while (!openers.includes(opener));
      closing.add(place);
      if (lengthOf(text.slice(begin, Math.min(place, begin + 2 * ENDS.LONGEST_QUOTE + 2))) <= ENDS.LONGEST_QUOTE)
        quotes.push([begin, place]);
    } else if (ENDS.OPENS.has(mark)) {
      opened.push([mark, place]);
      count(mark, 1);
    }
  }
  return {closing, quotes: quotes.sort((a, b) => a[0] - b[0] || a[1] - b[1])};
}

// Whether a stop belongs to the word before it, which is shortened, or to a number.
function isShort(text, stop, letter, mixed, lang, abbreviations) {
  const found = ENDS.LAST_WORD.at(text, stop);
  if (!found) return false;
  const word = found[1].replace(/^['’ʼ]+|['’ʼ]+$/g, ""), small = word.toLowerCase();
  const spaced = is("SPACE", characterBefore(text, stop)), begin = stop - found[1].length - (spaced ? 1 : 0);
  const unusual = Boolean(letter) && is("UPPER", letter) && text.charAt(begin - 1) !== "-" && // a compound
    isUnusualEnd(word, mixed, abbreviations);
  if (spaced) return abbreviations.has(small) || (unusual && lengthOf(word) > 1);
  if (ENDS.INITIAL.whole.test(word)) return !ENDS.UNSPACED.whole.test(word);
  if (ENDS.ORDINAL.whole.test(word)) return ENDS.ORDINALS.has(lang);
  const length = lengthOf(word), isUpper = isAll("UPPER", "LOWER", word), isLower = isAll("LOWER", "UPPER", word);
  return ENDS.WITH_STOPS.whole.test(word) || abbreviations.has(small) || ENDS.TITLES.has(small) ||
    Boolean(ENDS.BEFORE_NUMBER.has(small) && letter && is("DIGIT", letter)) || unusual ||
    (length >= 2 && length <= 4 && !isUpper && ENDS.NO_VOWEL.whole.test(word) &&
      !(isLower && ENDS.UNIT.at(text, stop)));
}

const isAll = (name, other, word) => is(name, word) && !is(other, word) && !is("TITLE", word);

// Whether a word is short or in capitals, and not known to end sentences.
function isUnusualEnd(word, mixed, abbreviations) {
  if (!word || [...word].some((character) => !is("ALPHA", character))) return false;
  const known = abbreviations.has(ENDS.KNOWN), length = lengthOf(word);
  const inCapitals = mixed && length > 1 && isAll("UPPER", "LOWER", word);
  return (length <= ENDS.SHORT ? known || inCapitals : known && inCapitals) &&
    !abbreviations.has(`${word.toLowerCase()}.`);
}

function endOf(text) { // without the white space behind it
  let end = text.length;
  while (end && is("SPACE", text.charAt(end - 1))) end--;
  return end;
}

// Join sentences to parts that fit, by halving the line as often as necessary.
function joinInParts(sentences, fits) {
  if (sentences.length === 1 || fits(sentences)) return [sentences.join("")];
  const middle = sentences.length >> 1;
  return [...joinInParts(sentences.slice(0, middle), fits), ...joinInParts(sentences.slice(middle), fits)];
}

// Join the translations of the parts of a line; `space` stands between two sentences of the target language.
function joinTranslations(translations, sources, space) {
  return translations.reduce((text, translation, part) => {
    const source = sources[part - 1], gap = source.slice(endOf(source));
    return text + (text && translation ? spaceBetween(gap, space) : "") + translation;
  });
}

function spaceBetween(gap, space) {
  if (gap.search(ENDS.CONTROL.everywhere) >= 0) return gap;
  return !space || !gap || gap.includes("\u3000") ? space : gap;
}
