#!/bin/sh
# Makes a program of a module: wasm2c.sh WASM2C FILES CLANG LEVEL MODULE PROGRAM
# FILES is the folder of the lab's WASI host. wasm2c's own runtime is where its package has it: beside bin/, or in share/wabt.
set -eu
wasm2c=$1 files=$2 clang=$3 level=$4 module=$5 program=$6
work=$(mktemp -d "$program.XXXXXX")
trap 'rm -rf "$work"' EXIT
"$wasm2c" -n guest -o "$work/guest.c" "$module"
wasi=
if grep -q 'w2c_wasi__snapshot__preview1\*' "$work/guest.h"; then wasi=-DGUEST_IMPORTS_WASI; fi
home=$(dirname "$(dirname "$(readlink -f "$wasm2c")")")
runtime=$home/wasm2c
if [ ! -e "$runtime/wasm-rt.h" ]; then runtime=$home/share/wabt/wasm2c; fi
shift 6
for source in wasm-rt-exceptions-impl wasm-rt-impl wasm-rt-mem-impl; do
  if [ -e "$runtime/$source.c" ]; then set -- "$@" "$runtime/$source.c"; fi
done
"$clang" "$level" -march=native -w $wasi -I"$work" -I"$files" -I"$runtime" -I"$home/include" \
  "$work/guest.c" "$files/wasm2c-host.c" "$@" -lm -o "$work/program"
mv "$work/program" "$program"
