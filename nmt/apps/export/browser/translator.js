// From lines of text to translations, as nmt/decoding/codec.py has it.

class Translator {
  // settings: the head of model.js. bytes: its weights. kernel: the compiled kernel.
  constructor(settings, bytes, kernel) {
    this.settings = settings;
    this.model = new Transformer(settings, bytes, kernel);
    this.segmenter = new SentencePiece(settings.segmenter);
    this.ids = new Map(settings.vocab.map((piece, id) => [piece, id]));
    this.directions = settings.directions.map((direction) =>
      ({...direction, abbreviations: new Set(direction.abbreviations)}));
  }

  // Translate a line. options: direction (an index of settings.directions) and beam.
  async translate(line, {direction = 0, beam = this.settings.decode.beam} = {}, pause = async () => {}) {
    if (isTooLong(line)) {
      const limit = LINES.LONGEST_SENTENCE.toLocaleString("en");
      throw new RangeError(`A line has over ${limit} characters. Divide it into paragraphs.`);
    }
    const chosen = this.directions[direction], parts = [], sources = [];
    for (const {text, pieces} of this.divide(line, chosen)) {
      const hypothesis = await this.search(pieces, chosen, beam, pause);
      parts.push(this.describe(pieces, hypothesis));
      sources.push(text);
    }
    if (!parts.length) return {text: "", score: 0, words: [], finished: true, short: false, unknown: 0};
    const sum = (name) => parts.reduce((total, part) => total + part[name], 0);
    return {
      text: joinTranslations(parts.map(({text}) => text), sources, chosen.space),
      score: sum("score"),
      words: parts.flatMap((part) => part.words),
      finished: parts.every(({finished}) => finished),
      short: parts.some(({short}) => short),
      unknown: sum("unknownPieces") / sum("sourcePieces"),
    };
  }

  segment(line) {
    const clean = cleanLine(line);
    return isBlank(clean) ? [] : this.segmenter.encode(normalize(clean, this.settings.text.form));
  }

  // Divide a line into parts that are not too long: [{text, pieces}], none for a blank line.
  divide(line, {lang, abbreviations}) {
    const {form, sentences: most, longest} = this.settings.text, cache = new Map();
    const piecesOf = (text) => {
      if (!cache.has(text)) cache.set(text, this.segment(text));
      return cache.get(text);
    };
    const fits = (sentences) => (most === null || sentences.length <= most) &&
      piecesOf(sentences.join("")).length <= longest;
    let texts = [line];
    if (most !== null || !fits(texts))
      texts = joinInParts(splitSentences(normalize(cleanLine(line), form), lang, abbreviations), fits);
    return texts.flatMap((text) => {
      const pieces = piecesOf(text), ends = partEnds(pieces.map((piece) => this.segmenter.surface(piece)), longest);
      return ends.map((end, part) => ({
        text: ends.length === 1 ? text : "",
        pieces: pieces.slice(part ? ends[part - 1] : 0, end),
      }));
    });
  }

  sourceIds(pieces, tag) { return [...tag, ...pieces.map((piece) => this.ids.get(piece) ?? UNK), EOS]; }

  search(pieces, {tag, tgtTag}, beam, pause) {
    const {decode, forbidden, model} = this.settings, source = this.sourceIds(pieces, tag), start = [BOS, ...tgtTag];
    const limit = source.length + decode.max_len_offset;
    return beamSearch(this.model, source, {
      beam, start, forbidden,
      alpha: decode.length_alpha,
      penalty: decode.length_penalty,
      noRepeat: decode.no_repeat_ngram,
      rule: decode.stop_rule,
      limit: model.longest === null ? limit : Math.min(limit, model.longest - start.length),
    }, pause);
  }

  // The translation of a part, with the probability of each word.
  describe(source, {ids, logProbs, score, finished}) {
    const {segmenter, settings: {text: {lengthRatio}}} = this, pieces = ids.map((id) => this.settings.vocab[id]);
    const surfaces = pieces.map((piece) => segmenter.surface(piece)), found = [];
    let begin = 0;
    pieces.forEach((_, index) => {
      if (index + 1 < pieces.length && !surfaces[index + 1].startsWith(" ")) return;
      const text = segmenter.decode(pieces.slice(begin, index + 1));
      if (!text && index + 1 < pieces.length) return; // a space belongs to the word after it
      const sum = logProbs.slice(begin, index + 1).reduce((total, value) => total + value, 0);
      found.push({text, probability: Math.exp(sum)});
      begin = index + 1;
    });
    return {
      text: segmenter.decode(pieces), words: found, score, finished,
      short: source.length * lengthRatio > 2 * pieces.length + 10,
      sourcePieces: source.length,
      unknownPieces: source.filter((piece) => !this.ids.has(piece)).length,
    };
  }
}

// Where the parts of a sentence end: between words if possible, else inside a word.
function partEnds(strings, longest) {
  const count = strings.length, ends = [];
  const inside = (cut) => !(strings[cut - 1].endsWith(" ") || strings[cut].startsWith(" "));
  let start = 0;
  while (count - start > longest) {
    const left = count - start, size = left / Math.ceil(left / longest);
    let best = null;
    for (let cut = start + Math.max(1, Math.trunc(size / 2)); cut <= start + longest; cut++) {
      const key = [Number(inside(cut)), Math.abs(cut - start - size)];
      if (!best || key[0] < best.key[0] || (key[0] === best.key[0] && key[1] < best.key[1])) best = {cut, key};
    }
    start = best.cut;
    ends.push(start);
  }
  return count ? [...ends, count] : [];
}
