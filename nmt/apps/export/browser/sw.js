// Stores the page at the first visit, so that it also opens without a network.
"use strict";
const FILES = ["index.html", "model.js", "translate.js", "manifest.webmanifest", "icon.svg"];
const PREFIX = `nmt ${self.registration.scope} `, CACHE = PREFIX + "VERSION";

self.addEventListener("install", (event) => event.waitUntil((async () => {
  const cache = await caches.open(CACHE);
  await cache.addAll(FILES.map((file) => new Request(file, {cache: "reload"})));
  await self.skipWaiting();
})()));

self.addEventListener("activate", (event) => event.waitUntil((async () => {
  const old = (await caches.keys()).filter((name) => name.startsWith(PREFIX) && name !== CACHE);
  await Promise.all(old.map((name) => caches.delete(name)));
  await self.clients.claim();
})()));

self.addEventListener("fetch", (event) => {
  const {request} = event, {pathname} = new URL(request.url);
  if (request.method !== "GET") return;
  const file = pathname.endsWith("/") ? "index.html" : request.url;
  event.respondWith((async () => {
    const cache = await caches.open(CACHE);
    return await cache.match(file, {ignoreSearch: true}) ?? fetch(request);
  })());
});
