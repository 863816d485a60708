// Runs the engine of translate.js on cases of a test, in node and in browsers.
"use strict";

async function loadModel(nmt, script) {
  new Function("module", script)({}); // model.js sets globalThis.nmtModel
  const {weights, ...settings} = globalThis.nmtModel;
  delete globalThis.nmtModel;
  const kernel = new WebAssembly.Module(await nmt.fromBase64(nmt.KERNEL));
  return new (nmt.engine().Translator)(settings, await nmt.fromBase64(weights), kernel);
}

// A model: {script, forced: [[source, target]], searches: [[source, options]]}, all of ids.
async function runModel(nmt, {script, forced, searches}) {
  const translator = await loadModel(nmt, script), {model} = translator, {beamSearch, logSumExp} = nmt.engine();
  const logProbs = forced.map(([source, target]) => {
    const memory = model.encode(source), states = [model.newState(2)];
    return target.map((token, position) => {
      const [row] = model.step([token], position, memory, states), sum = logSumExp(row);
      return Array.from(row, (value) => value - sum);
    });
  });
  const found = [];
  for (const [source, options] of searches) {
    const {ids, score, sum, finished} = await beamSearch(model, source, options, async () => {});
    found.push({ids, score, sum, finished: Boolean(finished)});
  }
  return {logProbs, found};
}

// A function of text on many lines: {name, lines, arguments}, or {script, lines} for pieces.
async function runText(nmt, {name, script, lines, args = []}) {
  if (name) {
    const call = nmt.engine()[name], values = args.map((value) => Array.isArray(value) ? new Set(value) : value);
    return lines.map((line) => call(line, ...values));
  }
  const translator = await loadModel(nmt, script);
  return lines.map((line) => translator.segment(line));
}

async function runCases(nmt, cases) {
  const results = [];
  for (const one of cases) results.push(one.forced ? await runModel(nmt, one) : await runText(nmt, one));
  return results;
}

if (typeof module === "object" && module.exports && process.argv[2]) {
  const fs = require("fs"), [translate, input, output] = process.argv.slice(2);
  runCases(require(translate), JSON.parse(fs.readFileSync(input, "utf8")))
    .then((results) => fs.writeFileSync(output, JSON.stringify(results)));
}
