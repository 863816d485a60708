// Beam search, as nmt/decoding/search.py has it.
// A hypothesis: its ids, the log-probability of each token, their sum, and the score.

const BOS = 1, EOS = 2, UNK = 3;

// options: beam, alpha, penalty (gnmt or mean), rule (count or bound), limit (tokens with EOS),
// start (tokens that the decoder reads first), forbidden (ids), noRepeat (length of the n-grams that occur once; 0 = off).
// pause() lets other work run, or throws.
async function beamSearch(model, source, options, pause) {
  const {beam, alpha, penalty, rule, limit, start, forbidden, noRepeat} = options;
  const divisor = (length) => penalty === "mean" ? (length + start.length - 1) ** alpha : ((5 + length) / 6) ** alpha;
  const memory = model.encode(source), first = model.newState();
  start.slice(0, -1).forEach((token, position) => model.step([token], position, memory, [first]));
  let beams = [{ids: [], logProbs: [], sum: 0, score: 0, token: start[start.length - 1], state: first}];
  const ended = [];
  for (let length = 1; ; length++) {
    await pause();
    const running = beams.filter(({finished}) => !finished);
    const rows = model.step(running.map(({token}) => token), length + start.length - 2, memory,
      running.map(({state}) => state));
    const width = rule === "count" ? 2 * beam : beam;
    const candidates = beams.flatMap((parent) => {
      if (parent.finished) return [{parent, score: parent.score, finished: true}];
      const row = rows[running.indexOf(parent)], sum = logSumExp(row);
      for (const id of [...forbidden, ...repeats(parent.ids, noRepeat)]) row[id] = -Infinity;
      if (length === 1) row[EOS] = -Infinity;
      return highest(row, width).map((id) => {
        const logProb = row[id] - sum;
        return {parent, id, logProb, score: (parent.sum + logProb) / divisor(length)};
      });
    });
    candidates.sort((a, b) => b.score - a.score); // stable: equal scores keep the order of their beams
    let next = candidates.slice(0, width);
    const last = length >= limit;
    if (rule === "count") {
      const done = next.slice(0, beam).filter(({id}) => id === EOS || last);
      ended.push(...done.map(extend));
      next = next.filter(({id}) => id !== EOS).slice(0, beam);
      if (last || ended.length >= beam || !next.length) break;
    }
    beams = next.map((candidate) => candidate.finished ? candidate.parent : extend(candidate));
    if (rule === "bound" && (last || canStop(beams, divisor(limit)))) {
      ended.push(...beams);
      break;
    }
    // the first child of a hypothesis takes its state, the others copy it
    const taken = new Set();
    for (const child of beams) {
      if (child.finished || child.state) continue;
      child.state = taken.has(child.parent) ? copyState(child.parent.state) : child.parent.state;
      taken.add(child.parent);
    }
    for (const child of beams) child.parent = null;
  }
  return ended.reduce((best, other) => other.score > best.score ? other : best);
}

// The ids that would complete an n-gram for the second time (Paulus et al. 2018, section 2.5).
function repeats(ids, n) {
  const last = ids.length - n + 1; // where the last n - 1 ids begin
  if (!n || last < 1) return [];
  const starts = [...Array(last).keys()];
  return starts.filter((start) => ids.slice(last).every((id, k) => id === ids[start + k]))
    .map((start) => ids[start + n - 1]);
}

function extend({parent, id, logProb, score}) {
  const finished = id === EOS;
  return {
    ids: finished ? parent.ids : [...parent.ids, id], logProbs: [...parent.logProbs, logProb],
    sum: parent.sum + logProb, score, token: id, finished, parent,
  };
}

// Whether no unfinished hypothesis can become the best.
function canStop(beams, longest) {
  const bounds = beams.filter(({finished}) => !finished).map(({sum}) => sum / longest);
  if (!bounds.length) return true;
  const highestBound = Math.max(...bounds);
  return beams.some(({finished, score}) => finished && score > highestBound);
}

function logSumExp(row) {
  let top = -Infinity, sum = 0;
  for (const value of row) if (value > top) top = value;
  for (const value of row) sum += Math.exp(value - top);
  return top + Math.log(sum);
}

// The ids of the highest values, the highest first; the lower id of equal ones.
function highest(row, count) {
  const ids = [];
  for (let id = 0; id < row.length; id++) {
    const value = row[id];
    if (value === -Infinity || (ids.length === count && value <= row[ids[count - 1]])) continue;
    let place = ids.length;
    while (place && row[ids[place - 1]] < value) place--;
    ids.splice(place, 0, id);
    if (ids.length > count) ids.pop();
  }
  return ids;
}
