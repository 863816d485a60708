// Segmentation: the pieces of SentencePiece (BPE and unigram), and their text.

const SPACE = "\u2581";

class SentencePiece {
  // kind: bpe or unigram. pieces, unused: [piece, score]. userDefined: texts that stay whole, of BPE.
  constructor({kind, pieces, unused, userDefined, byteFallback}) {
    this.kind = kind;
    this.byteFallback = byteFallback;
    const scored = [...pieces, ...unused, ...userDefined.map((piece) => [piece, 0])];
    this.scores = new Map(scored.map(([piece, score]) => [piece, Math.fround(score)]));
    this.unused = new Set(unused.map(([piece]) => piece));
    this.userDefined = new Set(userDefined);
    this.longest = Math.max(...Array.from(this.scores.keys(), (piece) => piece.length));
    this.longestSymbol = Math.max(0, ...userDefined.map((piece) => piece.length));
    const lowest = pieces.reduce((least, [piece]) => Math.min(least, this.scores.get(piece)), Infinity);
    this.unknownScore = Math.fround(lowest - 10);
  }

  // Return the pieces of a line in its Unicode form.
  encode(line) {
    const separated = words(line.replaceAll(SPACE, "_"));
    if (!separated.length) return [];
    const text = SPACE + separated.join(SPACE);
    const pieces = [];
    let afterUnknown = false;
    for (const piece of this.kind === "bpe" ? this.merge(text) : this.mostLikely(text)) {
      const known = this.scores.has(piece);
      if (!known && this.byteFallback)
        for (const byte of new TextEncoder().encode(piece)) pieces.push(byteName(byte));
      else if (!known && afterUnknown) pieces[pieces.length - 1] += piece; // they become one
      else pieces.push(piece);
      afterUnknown = !known;
    }
    return pieces;
  }

  // The longest user-defined symbol at a place; "" for none.
  symbolAt(text, place) {
    for (let length = Math.min(this.longestSymbol, text.length - place); length > 0; length--)
      if (this.userDefined.has(text.slice(place, place + length))) return text.slice(place, place + length);
    return "";
  }

  // BPE: join the neighbors that make the piece with the highest score, the leftmost of equal ones.
  merge(text) {
    const symbols = [], heap = new Heap((a, b) => a.score - b.score || b.left - a.left), parts = new Map();
    for (let place = 0; place < text.length;) {
      const whole = this.symbolAt(text, place), piece = whole || characterAt(text, place);
      symbols.push({piece, whole, left: symbols.length - 1, right: symbols.length + 1});
      place += piece.length;
    }
    const consider = (left, right) => {
      if (left < 0 || right >= symbols.length || symbols[left].whole || symbols[right].whole) return;
      const first = symbols[left].piece, second = symbols[right].piece, piece = first + second;
      const score = this.scores.get(piece);
      if (score === undefined) return;
      heap.push({score, left, right, length: piece.length});
      if (this.unused.has(piece)) parts.set(piece, [first, second]);
    };
    for (let left = 0; left + 1 < symbols.length; left++) consider(left, left + 1);
    for (let best; (best = heap.pop());) {
      const left = symbols[best.left], right = symbols[best.right];
      if (!left.piece || !right.piece || left.piece.length + right.piece.length !== best.length) continue;
      left.piece += right.piece;
      right.piece = "";
      left.right = right.right;
      if (right.right < symbols.length) symbols[right.right].left = best.left;
      consider(left.left, best.left);
      consider(best.left, left.right);
    }
    const split = (piece) => this.unused.has(piece) && parts.has(piece) ? parts.get(piece).flatMap(split) : [piece];
    return symbols.filter(({piece}) => piece).flatMap(({piece}) => split(piece));
  }

  // Unigram: the segmentation with the highest sum of scores, in the precision of SentencePiece.
  mostLikely(text) {
    const best = new Float32Array(text.length + 1), begin = new Int32Array(text.length + 1).fill(-1);
    const reach = (start, end, score) => {
      if (begin[end] >= 0 && score <= best[end]) return;
      best[end] = score;
      begin[end] = start;
    };
    for (let start = 0, width; start < text.length; start += width) {
      width = characterAt(text, start).length;
      let alone = false;
      for (let length = width; length <= this.longest && start + length <= text.length; length++) {
        const piece = text.slice(start, start + length), score = this.scores.get(piece);
        if (score === undefined || this.unused.has(piece)) continue;
        reach(start, start + length, Math.fround(score + best[start]));
        alone ||= length === width;
      }
      if (!alone) reach(start, start + width, Math.fround(this.unknownScore + best[start]));
    }
    const pieces = [];
    for (let end = text.length; end > 0; end = begin[end]) pieces.push(text.slice(begin[end], end));
    return pieces.reverse();
  }

  // Return pieces as text. A model may produce invalid UTF-8 or control characters as bytes.
  decode(pieces) {
    const text = this.byteFallback && pieces.some(isByte) ? cleanLine(joinBytes(pieces)) : pieces.join("");
    return text.replaceAll(SPACE, " ").replace(/^ +| +$/g, "");
  }

  // The text that a piece adds; a word begins with a space.
  surface(piece) {
    if (!this.byteFallback || !isByte(piece)) return piece.replaceAll(SPACE, " ");
    const byte = Number(piece.slice(1, -1));
    return byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "\ufffd";
  }
}

const byteName = (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
const isByte = (piece) => /^<0x[0-9A-F]{2}>$/.test(piece);

function joinBytes(pieces) {
  const bytes = pieces.flatMap((piece) =>
    isByte(piece) ? [Number(piece.slice(1, -1))] : [...new TextEncoder().encode(piece)]);
  return new TextDecoder("utf-8", {ignoreBOM: true}).decode(Uint8Array.from(bytes));
}

class Heap { // the largest first
  constructor(compare) { this.compare = compare; this.items = []; }
  push(item) {
    const {items} = this;
    let place = items.push(item) - 1;
    while (place) {
      const parent = (place - 1) >> 1;
      if (this.compare(items[parent], item) >= 0) break;
      items[place] = items[parent];
      place = parent;
    }
    items[place] = item;
  }
  pop() {
    const {items} = this, top = items[0], last = items.pop();
    if (!items.length) return top;
    let place = 0;
    for (let child; (child = 2 * place + 1) < items.length; place = child) {
      if (child + 1 < items.length && this.compare(items[child + 1], items[child]) > 0) child++;
      if (this.compare(last, items[child]) >= 0) break;
      items[place] = items[child];
    }
    items[place] = last;
    return top;
  }
}
