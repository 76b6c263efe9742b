#include "block.h"

// The sign of a comparison of two words as their bytes lie in memory.
static inline int order(__UINT64_TYPE__ a, __UINT64_TYPE__ b) {
    a = __builtin_bswap64(a);
    b = __builtin_bswap64(b);
    return (a > b) - (a < b);
}

int memcmp(const void *left, const void *right, size_t n) {
    const u8 *a = left, *b = right;
    if (n < 8) {
        for (; n; n--, a++, b++)
            if (*a != *b) return *a - *b;
        return 0;
    }
    const u8 *last = a + n - 8;
    for (; a < last; a += 8, b += 8)
        if (LOAD(u64, a) != LOAD(u64, b)) return order(LOAD(u64, a), LOAD(u64, b));
    // The last word overlaps bytes that are equal already.
    b -= a - last;
    return order(LOAD(u64, last), LOAD(u64, b));
}

int bcmp(const void *left, const void *right, size_t n) __attribute__((alias("memcmp")));
