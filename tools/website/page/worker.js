// Judges answers in a thread of its own, which the page ends where an answer does not. It loads Python, the torch of
// the page and the package, all from the folder that it lies in. An answer is a stranger's code for all that the reader
// knows: what it reaches has no network and keeps nothing.

import { loadPyodide } from "./pyodide.mjs";

const here = new URL("./", import.meta.url).href;
const tell = (kind, value) => postMessage({ kind, value });

// Python itself comes packed, so that any server sends little; what has come is told for the bar. Where it breaks off,
// or is something else, Pyodide would wait for ever: `breaks` says so.
const plain = fetch;
let broken;
const breaks = new Promise((_, reject) => (broken = reject));
const through = (body, stream) => (body.pipeTo(stream.writable).catch(broken), stream.readable);
let come = 0;
async function counted(name) {
  const answer = await plain(here + name);
  if (!answer.ok) throw new Error(`${answer.status} ${name}`);
  const count = new TransformStream({
    transform(part, into) {
      come += part.byteLength;
      tell("come", come);
      into.enqueue(part);
    },
  });
  return through(answer.body, count);
}
self.fetch = async (address, options) => {
  const name = String(address).split("/").at(-1);
  if (name === "pyodide.asm.wasm") {
    const body = through(await counted("pyodide.asm.wasm.packed"), new DecompressionStream("gzip"));
    return new Response(body, { headers: { "Content-Type": "application/wasm" } });
  }
  if (name === "python_stdlib.zip") return new Response(await counted(name));
  return plain(address, options);
};

// Python tells by lines of JSON, so that it holds no object of JavaScript. An answer may write such lines, too: of these
// no more are told, and no longer ones, than a check has.
const LINES = 20_000;
let left = 0;
function relay(line) {
  try {
    const [kind, value] = JSON.parse(line);
    if (["printed", "call", "called"].includes(kind) && left-- > 0) tell(kind, String(value).slice(0, 10_000));
  } catch {}
}

const OUT = ["fetch", "XMLHttpRequest", "WebSocket", "WebSocketStream", "WebTransport", "EventSource", "importScripts", "Worker", "SharedWorker", "BroadcastChannel", "FontFace", "fonts", "navigator", "caches", "indexedDB", "cookieStore"];
function shut() {
  const names = [...OUT, ...Object.getOwnPropertyNames(self).filter((name) => name.startsWith("webkit"))]; // file systems
  for (let owner = self; owner; owner = Object.getPrototypeOf(owner)) for (const name of names) Reflect.deleteProperty(owner, name);
  const found = OUT.find((name) => name in self);
  if (found) throw new Error(`this browser does not let go of ${found}`);
}

async function load() {
  const course = counted("course.zip").then((body) => new Response(body).arrayBuffer());
  const lock = await (await plain(`${here}pyodide-lock.json`)).text();
  const coming = loadPyodide({ indexURL: here, lockFileContents: lock, stdout: relay, stderr: () => {} });
  const python = await Promise.race([coming, breaks]);
  tell("starting");
  python.unpackArchive(await course, "zip", { extractDir: "/course" });
  const functions = python.runPython(`
import sys
sys.path.insert(0, "/course")
sys.setrecursionlimit(400)
import absent
absent.install()
import bridge
bridge.hide("/course")
sys.path.remove("/course")
functions = [bridge.judged, bridge.prepare, bridge.work_on]
del bridge, absent
functions
`);
  const [judged, prepare, workOn] = functions.toJs();
  python.runPython("globals().clear()");
  shut();
  return { python, judged, prepare, workOn };
}

const loaded = load();
loaded.then(
  () => tell("ready"),
  (error) => tell("failed", error?.message ?? String(error)),
);

let working; // the timer of what is prepared for the checks to come

// A message is a check, or names the exercises that are to be prepared, the most likely first.
onmessage = async ({ data: { ahead, exercise, source, given, name, seed } }) => {
  const { python, judged, prepare, workOn } = await loaded;
  const goOn = () => (working = workOn() ? setTimeout(goOn, 10) : null);
  clearTimeout(working);
  left = LINES;
  try {
    if (ahead) prepare(JSON.stringify(ahead));
    else tell("verdict", JSON.parse(judged(exercise, source, given, name, seed)));
    working = setTimeout(goOn, 10);
    if (python._module.HEAPU8.length > 2 ** 29) tell("full");
  } catch (error) {
    tell("ended", String(error)); // os._exit, or a recursion that is too deep for Python itself
  }
};
