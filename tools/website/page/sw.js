// Keeps the site for visits without a network: the judge as it is, since its address changes with its content; pages as
// they were when they were last loaded.

const { JUDGE, FILES } = self; // written above by judge.py: a folder, and the names of its files
const KEPT = `attention ${self.registration.scope}`; // a host may have two copies of the site

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

async function put(address) {
  const answer = await fetch(address, { cache: address.includes(JUDGE) ? "force-cache" : "no-cache" });
  if (answer.ok) await (await caches.open(KEPT)).put(address, answer);
}

self.addEventListener("message", (event) => {
  const loaded = event.data.filter((address) => !address.includes("/judge/"));
  const judge = FILES.map((name) => new URL(JUDGE + name, self.registration.scope).href);
  const tidy = async () => {
    const cache = await caches.open(KEPT);
    for (const { url } of await cache.keys()) if (url.includes("/judge/") && !judge.includes(url)) await cache.delete(url);
    const had = new Set((await cache.keys()).map(({ url }) => url));
    await Promise.all([...loaded, ...judge.filter((address) => !had.has(address))].map((address) => put(address).catch(() => {})));
  };
  event.waitUntil(tidy());
});

// A disk that is full, or a browser that keeps nothing, is no reason to answer with less than the network does.
async function answered(event) {
  const { request } = event;
  const cache = await caches.open(KEPT).catch(() => null);
  const kept = await cache?.match(request, { ignoreSearch: true });
  if (kept && request.url.includes(JUDGE)) return kept;
  try {
    const answer = await fetch(request, { cache: "no-cache" }); // what the browser itself keeps may be of an older edition
    if (cache && answer.ok && answer.type === "basic") event.waitUntil(cache.put(request, answer.clone()).catch(() => {}));
    return answer;
  } catch (error) {
    if (kept) return kept;
    throw error;
  }
}

self.addEventListener("fetch", (event) => {
  const { method, url } = event.request;
  if (method === "GET" && url.startsWith(self.registration.scope)) event.respondWith(answered(event));
});
