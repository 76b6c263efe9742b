// Runs a WASI module in a JavaScript engine that has node:wasi: wasi.mjs DIRECTORY MODULE ARGS…
// The guest sees DIRECTORY as "/"; its exit code is this program's.
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import process from "node:process";
import { WASI } from "node:wasi";

const [directory, file, ...args] = process.argv.slice(2);
const wasi = new WASI({
  version: "preview1",
  args: [basename(file), ...args],
  env: {},
  preopens: { "/": directory },
  returnOnExit: true,
});
const module = new WebAssembly.Module(readFileSync(file));
const instance = new WebAssembly.Instance(module, wasi.getImportObject?.() ?? { wasi_snapshot_preview1: wasi.wasiImport });
process.exitCode = wasi.start(instance) ?? 0;
