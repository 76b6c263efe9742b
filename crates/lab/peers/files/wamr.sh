#!/bin/sh
# Builds iwasm and wamrc: wamr.sh SOURCE HOME CLANG LLVM_CONFIG. LLVM is version 13 or 14.
#
# The source is of 2021. It reads the index of a call_indirect's table as one byte, but linkers write five; it calls two functions of LLVM
# that have another name since, or are gone; and it protects the end of the main thread's stack before the first call, which Linux 6.18
# refuses (the kernel's own guard is there).
set -eu
source=$1 home=$2 clang=$3 llvm=$4
iwasm=$source/core/iwasm
sed -i 's|frame_ip++; /\* skip 0x00 \*/|while (*frame_ip++ \& 0x80) {}|' "$iwasm/compilation/aot_compiler.c"
sed -i -e '\|/\* typeidx \*/|,/break;/s|u8 = read_uint8(p); /\* 0x00 \*/|skip_leb_uint32(p, p_end);|' \
  -e '/read_leb_uint32(p, p_end, type_idx);/,/goto fail/s|if (\*p++ != 0x00) {|while (*p \& 0x80) p++; if (*p++ != 0x00) {|' \
  "$iwasm/interpreter/wasm_loader.c"
sed -i 's/if (os_mprotect(stack_min_addr, page_size \* guard_page_count,/if (0 \&\& os_mprotect(stack_min_addr, page_size * guard_page_count,/' \
  "$iwasm/aot/aot_runtime.c"
# A trap is a failure of the program.
sed -i 's/        printf("%s\\n", exception);/        fprintf(stderr, "%s\\n", exception), exit(134);/' "$source/product-mini/platforms/linux/main.c"
sed -i 's/Attrs.addAttribute(/Attrs.addAttributeAtIndex(/' "$iwasm/compilation/aot_llvm_extra.cpp"
# Its list of LLVM's libraries names the one that holds all of them besides each of them.
sed -i 's/^find_package(LLVM REQUIRED CONFIG)/&\nset(LLVM_AVAILABLE_LIBS LLVM)/; s/aotclib vmlib LLVMDemangle/aotclib vmlib/' "$source/wamr-compiler/CMakeLists.txt"
mkdir -p "$source/core/deps/llvm/build" "$home/bin"
export CC="$clang" CXX="$(dirname "$clang")/$(basename "$clang" | sed 's/clang/clang++/')"
build() {
  cmake -S "$1" -B "$2" -DCMAKE_BUILD_TYPE=Release -DCMAKE_POLICY_VERSION_MINIMUM=3.5 -DWAMR_BUILD_SIMD=1 -DWAMR_BUILD_BULK_MEMORY=1 \
    -DCMAKE_CXX_FLAGS=-w "-DCMAKE_C_FLAGS=-w -D\"LLVMAddConstantPropagationPass(p)=\"" "-DLLVM_DIR=$("$llvm" --cmakedir)"
  cmake --build "$2"
}
build "$source/product-mini/platforms/linux" "$source/build-iwasm"
build "$source/wamr-compiler" "$source/build-wamrc"
mv "$source/build-iwasm/iwasm" "$source/build-wamrc/wamrc" "$home/bin"
sed -n 's/^version = "\(.*\)"/WAMR of the crate wamr-sys \1/p' "$home/source/Cargo.toml" | head -n 1 >"$home/version"
rm -rf "$home/source"
