
"use strict";
const TYPING = 150, REST = 700; // milliseconds without typing before a greedy search, and before a beam search
const UPDATE = 200; // milliseconds between two changes of what is shown
const LONGEST = 100000; // characters of a line; a browser needs minutes to show longer words
const LOW = 0.2, MEDIUM = 0.5; // probabilities of a word
const find = (selector) => document.querySelector(selector);
const text = find("#text"), box = find("#translation"), statusLine = find("#status"), message = find("#message");
const menu = find("#direction"), {directions, decode} = globalThis.nmtModel ?? {directions: [], decode: {}};
const results = [new Map(), new Map()]; // of a paragraph, by greedy and by beam search
const shown = []; // the node of each paragraph
let running, typing, resting;

function make(tag, content, attributes = {}) {
  const node = document.createElement(tag);
  node.textContent = content; // text never becomes markup
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// The text of a translation, with an element for each uncertain word.
function row({text: translation, words}) {
  const node = make("p", "", {dir: "auto"});
  let position = 0;
  for (const {text: word, probability} of words) {
    const start = translation.indexOf(word, position);
    if (start < 0 || !word || probability >= MEDIUM) continue;
    node.append(translation.slice(position, start), make("span", word, {
      class: probability < LOW ? "low" : "medium",
      title: `probability ${Math.round(100 * probability)} %`,
    }));
    position = start + word.length;
  }
  node.append(translation.slice(position));
  return node;
}

const blank = {text: "", words: [], finished: true, short: false, unknown: 0};
const paragraphs = () => text.value.trim() ? text.value.split("\n").map((line) => line.replace(/\r$/, "")) : [];

// Translate the text; the paragraphs that have not changed keep their translation.
async function translate(beam) {
  running?.abort();
  const {signal} = running = new AbortController(), known = results[Number(beam > 1)];
  const lines = paragraphs(), moved = shown.length !== lines.length, missing = [];
  lines.forEach((line, index) => {
    const result = line.trim() ? known.get(line) : blank;
    if (!result) missing.push(index);
    // until it is translated, show a greedy translation, or that of the text before a change
    const before = result ?? results[0].get(line) ?? (moved ? blank : null);
    if (before) place(row(before), index);
  });
  while (shown.length > lines.length) shown.pop().remove();
  find("#stop").hidden = !missing.length;
  find("#copy").disabled = true;
  message.textContent = "";
  const began = performance.now(), pending = [];
  let done = 0, updated = -UPDATE;
  const show = () => pending.splice(0).forEach((index) => place(row(known.get(lines[index])), index));
  const update = () => {
    show();
    if (missing.length > 1) statusLine.textContent = `Translating: ${done} of ${missing.length} paragraphs`;
    updated = performance.now();
  };
  try {
    for (const index of missing) {
      if (performance.now() - updated >= UPDATE) update();
      const [result] = await nmt.translate([lines[index]], {direction: Number(menu.value), beam, signal});
      known.set(lines[index], result);
      pending.push(index);
      done++;
    }
    update();
    const time = done ? `Translated in ${((performance.now() - began) / 1000).toFixed(1)} s. ` : "";
    statusLine.textContent = (time + warnings(lines, known)).trim();
    box.classList.remove("stale");
  } catch (error) {
    if (running.signal === signal) show();
    if (signal.aborted) return;
    message.textContent = error.message;
    statusLine.textContent = "";
  }
  if (known.size > 2 * lines.length + 100) {
    const kept = new Set(lines);
    for (const line of known.keys()) if (!kept.has(line)) known.delete(line);
  }
  find("#stop").hidden = true;
  find("#copy").disabled = !box.textContent;
}

function place(node, index) {
  if (shown[index]) shown[index].replaceWith(node); else box.append(node);
  shown[index] = node;
}

function warnings(lines, known) {
  const found = lines.map((line) => known.get(line)).filter(Boolean), some = (test) => found.some(test);
  return [
    some(({unknown}) => unknown > 0.5) && "The model does not know most of this text.",
    some(({short}) => short) && "Text is probably missing.",
    some(({finished}) => !finished) && "A translation was cut.",
  ].filter(Boolean).join(" ");
}

function changed() {
  clearTimeout(typing);
  clearTimeout(resting);
  running?.abort();
  box.classList.toggle("stale", shown.length > 0);
  find("#copy").disabled = true;
  if (!text.value.trim()) return translate(1);
  typing = setTimeout(translate, TYPING, 1);
  if (decode.beam > 1) resting = setTimeout(translate, REST, decode.beam);
}

function showDirection() {
  const {names, src, tgt} = directions[Number(menu.value)];
  find("#source-name").textContent = names[0];
  find("#target-name").textContent = names[1];
  text.lang = src;
  box.lang = tgt;
}

text.addEventListener("input", changed);
text.addEventListener("beforeinput", (event) => {
  const added = event.data ?? event.dataTransfer?.getData("text/plain") ?? "";
  if (added.length <= LONGEST || added.split("\n").every((line) => line.length <= LONGEST)) return;
  event.preventDefault();
  message.textContent = "The text has a line of over 100,000 characters. Divide it into paragraphs.";
});
find("#clear").addEventListener("click", () => { text.value = ""; changed(); text.focus(); });
find("#stop").addEventListener("click", () => {
  clearTimeout(resting);
  running.abort();
  find("#stop").hidden = true;
  find("#copy").disabled = !box.textContent;
  statusLine.textContent = "Stopped.";
});
menu.addEventListener("change", () => {
  results.forEach((known) => known.clear());
  box.replaceChildren();
  shown.length = 0;
  showDirection();
  changed();
});
find("#copy").addEventListener("click", async () => {
  const translation = shown.map((line) => line.textContent).join("\n");
  try {
    await navigator.clipboard.writeText(translation);
    statusLine.textContent = "Copied.";
  } catch {
    getSelection().selectAllChildren(box);
    statusLine.textContent = "The browser does not allow copying. The translation is selected instead.";
  }
});

async function start() {
  if (!directions.length) {
    message.textContent = "The model is missing. Keep model.js and translate.js in the folder of this page.";
    statusLine.textContent = "";
    return;
  }
  directions.forEach(({names, tags}, index) => {
    const name = names.join(" → "), twice = directions.filter((one) => one.names.join(" → ") === name).length > 1;
    menu.append(make("option", twice ? `${name} ${tags.join(" ")}` : name, {value: index}));
  });
  find("#directions").hidden = directions.length < 2;
  showDirection();
  try {
    await nmt.ready();
  } catch (error) {
    message.textContent = `This browser cannot compute the model (${error.message}). It needs WebAssembly ` +
      "with SIMD: Chrome 91, Firefox 89, Safari 16.4 or newer.";
    statusLine.textContent = "";
    return;
  }
  statusLine.textContent = "Ready.";
  if (text.value.trim()) changed();
}

if (location.protocol.startsWith("http") && "serviceWorker" in navigator) {
  const link = document.createElement("link");
  link.rel = "manifest";
  link.href = "manifest.webmanifest";
  document.head.append(link);
  navigator.serviceWorker.register("sw.js").catch(() => {}); // without it, the page works online only
}
start();
