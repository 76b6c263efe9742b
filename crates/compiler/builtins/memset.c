#include "block.h"

// From here on the processor's own string instruction is as fast as the loop (Zen 4), and reads no cache lines that it overwrites.
#ifdef __AVX2__
#define STRING_MIN (32 << 10)
#else
#define STRING_MIN (2 << 10)
#endif

// Fills [0, n) with two stores that overlap.
#define PAIR(type, value)                                \
    do {                                                 \
        STORE(type, d, (type)(value));                   \
        STORE(type, d + n - sizeof(type), (type)(value)); \
        return dst;                                      \
    } while (0)

void *memset(void *dst, int byte, size_t n) {
    u8 *d = dst;
    __UINT64_TYPE__ word = (u8)byte * 0x0101010101010101u;
    if (n <= 16) {
        if (n >= 8) PAIR(u64, word);
        if (n >= 4) PAIR(u32, word);
        if (n >= 2) PAIR(u16, word);
        if (n) *d = (u8)byte;
        return dst;
    }
    if (n <= 32) PAIR(v16, (v16){} + (u8)byte);
    if (n <= 64) PAIR(v32, (v32){} + (u8)byte);
    if (n <= 128) PAIR(v64, (v64){} + (u8)byte);
#ifdef __x86_64__
    if (n >= STRING_MIN) {
        void *to = dst;
        __asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(byte) : "memory");
        return dst;
    }
#endif
    wide value = (wide){} + (u8)byte;
    u8 *end = d + n - 4 * WIDE;
    STORE(wide, d, value);
    for (u8 *to = d + WIDE - ((uintptr_t)d & (WIDE - 1)); to < end; to += 4 * WIDE) {
        STORE(wide_aligned, to, value);
        STORE(wide_aligned, to + WIDE, value);
        STORE(wide_aligned, to + 2 * WIDE, value);
        STORE(wide_aligned, to + 3 * WIDE, value);
    }
    STORE(wide, end, value);
    STORE(wide, end + WIDE, value);
    STORE(wide, end + 2 * WIDE, value);
    STORE(wide, end + 3 * WIDE, value);
    return dst;
}
