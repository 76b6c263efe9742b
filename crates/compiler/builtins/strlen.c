#include "block.h"

// Reads whole aligned words: none crosses a page, so none faults that the string itself would not fault on.
size_t strlen(const char *string) {
    const __UINT64_TYPE__ ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    const u8 *at = (const u8 *)((uintptr_t)string & ~(uintptr_t)7);
    unsigned before = (unsigned)((uintptr_t)string & 7) * 8;
    // Bytes before the string must not look like its end.
    __UINT64_TYPE__ word = LOAD(u64, at) | (((__UINT64_TYPE__)1 << before) - 1);
    __UINT64_TYPE__ zero;
    while (!(zero = (word - ones) & ~word & tops)) {
        at += 8;
        word = LOAD(u64, at);
    }
    return (size_t)(at - (const u8 *)string) + (size_t)__builtin_ctzll(zero) / 8;
}
