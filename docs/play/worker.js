// The worker in which the machine lives: a script that does not end keeps only this busy.
"use strict";

importScripts("wasm_exec.js");

globalThis.carrelReady = () => postMessage({ ready: true });

onmessage = async ({ data: { id, name, args } }) => {
  try {
    if (name === "run") {
      const say = (stream) => (text) => postMessage({ text, stream });
      postMessage({ id, value: await carrel.run(args[0], say("out"), say("err")) });
      return;
    }
    const value = carrel[name](...args);
    if (typeof value === "string" && name !== "read") throw new Error(value);
    postMessage({ id, value });
  } catch (e) {
    postMessage({ id, error: String(e.message ?? e) });
  }
};

const go = new Go();
WebAssembly.instantiateStreaming(fetch("carrel.wasm"), go.importObject)
  .then(({ instance }) => go.run(instance))
  .catch((e) => postMessage({ failed: String(e) }));
