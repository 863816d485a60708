// Translates text with the model of model.js, in a browser or in node, without a server.
//
//   <script src="model.js"></script><script src="translate.js"></script>
//   <script>nmt.translate(["A line."]).then(([first]) => console.log(first.text));</script>
//
//   const {translate} = require("./translate.js");
//
// nmt-export of nmt (NMT_VERSION) wrote this file. License: Apache-2.0.
"use strict";
const nmt = (() => {

// What runs in a worker. It is a function, so that a page on disk can make the worker from its text.
function engine() {
const RULES = RULES_TABLE;
//= text.js
//= segmentation.js
//= model.js
//= search.js
//= translator.js
return {Translator, beamSearch, logSumExp, cleanLine, isBlank, normalize, splitSentences, spaceBetween};
}

const KERNEL = "KERNEL_BASE64"; // kernel.wat, assembled
const STEP = 30; // milliseconds of work between two looks at messages

// Decode base64 in pieces, so that a page does not freeze.
async function fromBase64(text, pause = async () => {}) {
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0, size = 1 << 20;
  const bytes = new Uint8Array(text.length / 4 * 3 - padding);
  let place = 0;
  for (let start = 0; start < text.length; start += size) {
    const part = atob(text.slice(start, start + size));
    for (let i = 0; i < part.length; i++) bytes[place++] = part.charCodeAt(i);
    await pause();
  }
  return bytes;
}

// A function that lets other work run when STEP has passed, and throws if `signal` is aborted.
function pauser(signal) {
  let last = performance.now();
  return async () => {
    if (performance.now() - last > STEP) {
      await new Promise((resume) => {
        if (typeof setImmediate === "function") return setImmediate(resume);
        const {port1, port2} = new MessageChannel(); // setTimeout would wait for 4 ms
        port1.onmessage = () => { port1.close(); resume(); };
        port2.postMessage(null);
      });
      last = performance.now();
    }
    signal?.throwIfAborted();
  };
}

// In the worker: answer {settings, bytes, kernel}, {id, line, options} and {stop: id}.
function serve(scope, {Translator}, pauser) {
  const running = new Map();
  let translator;
  scope.onmessage = async ({data}) => {
    if (data.settings) {
      try {
        translator = new Translator(data.settings, data.bytes, new WebAssembly.Module(data.kernel));
        scope.postMessage({ready: true});
      } catch (error) {
        scope.postMessage({failed: String(error)});
      }
    } else if ("stop" in data) running.get(data.stop)?.abort();
    else {
      const {id, line, options} = data, controller = new AbortController();
      running.set(id, controller);
      try {
        scope.postMessage({id, result: await translator.translate(line, options, pauser(controller.signal))});
      } catch (error) {
        scope.postMessage({id, error: error.message});
      }
      running.delete(id);
    }
  };
}

let loaded; // a promise of a function (line, options, signal) -> promise of a result

async function load() {
  const model = globalThis.nmtModel ?? (typeof require === "function" ? require("./model.js") : null);
  if (!model) throw new Error("model.js must be loaded before translate.js is used");
  const {weights, ...settings} = model;
  const kernel = await fromBase64(KERNEL);
  const bytes = await fromBase64(weights, pauser());
  delete globalThis.nmtModel; // the text takes more memory than the weights
  if (typeof Worker === "undefined") {
    const translator = new (engine().Translator)(settings, bytes, new WebAssembly.Module(kernel));
    return (line, options, signal) => translator.translate(line, options, pauser(signal));
  }
  const source = `"use strict"; const STEP = ${STEP}; ${pauser}; ${serve}; serve(self, (${engine})(), pauser);`;
  const url = URL.createObjectURL(new Blob([source], {type: "text/javascript"}));
  const worker = new Worker(url), waiting = new Map();
  await new Promise((ready, failed) => {
    worker.onerror = (event) => failed(new Error(event.message || "The worker does not start."));
    worker.onmessage = ({data}) => data.ready ? ready() : failed(new Error(data.failed));
    worker.postMessage({settings, bytes, kernel}, [bytes.buffer, kernel.buffer]);
  });
  URL.revokeObjectURL(url);
  worker.onmessage = ({data: {id, result, error}}) => {
    const {resolve, reject, signal} = waiting.get(id);
    waiting.delete(id);
    if (error === undefined) resolve(result); else reject(signal?.aborted ? signal.reason : new Error(error));
  };
  let last = 0;
  return (line, options, signal) => new Promise((resolve, reject) => {
    const id = ++last;
    waiting.set(id, {resolve, reject, signal});
    worker.postMessage({id, line, options});
    signal?.addEventListener("abort", () => worker.postMessage({stop: id}), {once: true});
  });
}

// Translate lines, one after the other. Returns a promise of a list with, for each line:
//   text, score, words ([{text, probability}]), finished (false: cut at the length limit),
//   short (text is probably missing) and unknown (share of the source that the model does not know).
// options:
//   direction   index of settings.directions in model.js; 0 by default
//   beam        by default, that of the recipe; 1 is fastest
//   signal      an AbortSignal that stops the work
//   onResult    is called with each result and its index
async function translate(lines, {direction = 0, beam, signal, onResult} = {}) {
  loaded ??= load();
  const run = await loaded, results = [];
  for (const line of lines) {
    signal?.throwIfAborted();
    const result = await run(line, {direction, ...(beam && {beam})}, signal);
    signal?.throwIfAborted();
    results.push(result);
    onResult?.(result, results.length - 1);
  }
  return results;
}

return {translate, ready: () => (loaded ??= load()), engine, fromBase64, KERNEL};
})();
if (typeof module === "object") module.exports = nmt;
