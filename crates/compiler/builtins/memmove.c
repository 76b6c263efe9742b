// memmove, which is memcpy as well: telling them apart would save one compare for copies of more than 128 bytes.
//
// No `rep movsb` at any length: on Zen 4 it takes 4 times as long as this loop from 4 KiB to 256 KiB when the addresses are not aligned
// alike, and gains 1% at 4 MiB.
#include "block.h"

// Copies [0, n) with two accesses that overlap; both are read before either is written.
#define PAIR(type)                                       \
    do {                                                 \
        type first = LOAD(type, s);                      \
        type last = LOAD(type, s + n - sizeof(type));    \
        STORE(type, d, first);                           \
        STORE(type, d + n - sizeof(type), last);         \
        return dst;                                      \
    } while (0)

// More than 128 bytes, low addresses first: right unless dst lies inside [src, src + n). What an aligned loop cannot
// reach, the first vector and the last four, is read before the loop writes and written after it.
static inline __attribute__((always_inline)) void forward(u8 *d, const u8 *s, size_t n) {
    wide head = LOAD(wide, s);
    const u8 *end = s + n - 4 * WIDE;
    wide a = LOAD(wide, end), b = LOAD(wide, end + WIDE), c = LOAD(wide, end + 2 * WIDE), e = LOAD(wide, end + 3 * WIDE);
    size_t skip = WIDE - ((uintptr_t)d & (WIDE - 1));
    u8 *to = d + skip;
    const u8 *from = s + skip;
    for (; from < end; from += 4 * WIDE, to += 4 * WIDE) {
        wide w = LOAD(wide, from), x = LOAD(wide, from + WIDE);
        wide y = LOAD(wide, from + 2 * WIDE), z = LOAD(wide, from + 3 * WIDE);
        STORE(wide_aligned, to, w);
        STORE(wide_aligned, to + WIDE, x);
        STORE(wide_aligned, to + 2 * WIDE, y);
        STORE(wide_aligned, to + 3 * WIDE, z);
    }
    to = d + n - 4 * WIDE;
    STORE(wide, to, a);
    STORE(wide, to + WIDE, b);
    STORE(wide, to + 2 * WIDE, c);
    STORE(wide, to + 3 * WIDE, e);
    STORE(wide, d, head);
}

// The same from the high end: right unless src lies inside [dst, dst + n).
static inline __attribute__((always_inline)) void backward(u8 *d, const u8 *s, size_t n) {
    wide tail = LOAD(wide, s + n - WIDE);
    wide a = LOAD(wide, s), b = LOAD(wide, s + WIDE), c = LOAD(wide, s + 2 * WIDE), e = LOAD(wide, s + 3 * WIDE);
    size_t skip = (uintptr_t)(d + n) & (WIDE - 1);
    u8 *to = d + n - skip;
    const u8 *from = s + n - skip;
    while (from > s + 4 * WIDE) {
        from -= 4 * WIDE;
        to -= 4 * WIDE;
        wide w = LOAD(wide, from), x = LOAD(wide, from + WIDE);
        wide y = LOAD(wide, from + 2 * WIDE), z = LOAD(wide, from + 3 * WIDE);
        STORE(wide_aligned, to, w);
        STORE(wide_aligned, to + WIDE, x);
        STORE(wide_aligned, to + 2 * WIDE, y);
        STORE(wide_aligned, to + 3 * WIDE, z);
    }
    STORE(wide, d, a);
    STORE(wide, d + WIDE, b);
    STORE(wide, d + 2 * WIDE, c);
    STORE(wide, d + 3 * WIDE, e);
    STORE(wide, d + n - WIDE, tail);
}

void *memmove(void *dst, const void *src, size_t n) {
    u8 *d = dst;
    const u8 *s = src;
    if (n <= 16) {
        if (n >= 8) PAIR(u64);
        if (n >= 4) PAIR(u32);
        if (n >= 2) PAIR(u16);
        if (n) *d = *s;
        return dst;
    }
    if (n <= 32) PAIR(v16);
    if (n <= 64) PAIR(v32);
    if (n <= 128) PAIR(v64);
    if ((uintptr_t)d - (uintptr_t)s < n) {
        if (d != s) backward(d, s, n);
        return dst;
    }
    forward(d, s, n);
    return dst;
}

void *memcpy(void *dst, const void *src, size_t n) __attribute__((alias("memmove")));
