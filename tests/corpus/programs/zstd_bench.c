/* zstd: compresses a generated text-like buffer at four levels, decompresses and compares it. Prints sizes and a checksum of the
 * compressed bytes. Argument: megabytes (default 12). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

static unsigned int random_state = 2463534242u;

static unsigned int next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}

/* Words of a made-up vocabulary, the common ones more often, with numbers between them. */
static void generate(unsigned char *buffer, size_t size)
{
    static char words[4096][12];
    size_t used = 0;
    int i;
    for (i = 0; i < 4096; i++) {
        unsigned int k, length = 2 + next_random() % 9;
        for (k = 0; k < length; k++) {
            words[i][k] = (char) ('a' + next_random() % 26);
        }
    }
    while (used < size) {
        char piece[24];
        unsigned int pick = next_random();
        size_t length;
        if (pick % 16 == 0) {
            snprintf(piece, sizeof piece, "%u,\n", next_random() % 100000);
        } else {
            unsigned int limit = 1u << (1 + (pick >> 8) % 12);
            snprintf(piece, sizeof piece, "%s ", words[(pick >> 16) % limit]);
        }
        length = strlen(piece);
        if (length > size - used) {
            length = size - used;
        }
        memcpy(buffer + used, piece, length);
        used += length;
    }
}

int main(int argc, char **argv)
{
    static const int levels[] = { 1, 3, 9, 16 };
    size_t megabytes = argc > 1 ? (size_t) atoi(argv[1]) : 12;
    size_t size = megabytes << 20, bound = ZSTD_compressBound(size);
    unsigned char *plain = malloc(size), *packed = malloc(bound), *again = malloc(size);
    size_t i;
    if (plain == NULL || packed == NULL || again == NULL) {
        fputs("out of memory\n", stderr);
        return 1;
    }
    generate(plain, size);
    for (i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        /* The slow levels get less, so that no level is the whole benchmark. */
        size_t part = levels[i] > 9 ? size / 8 : size;
        size_t length = ZSTD_compress(packed, bound, plain, part, levels[i]), k;
        unsigned long long sum = 14695981039346656037ull;
        int rounds;
        if (ZSTD_isError(length)) {
            fprintf(stderr, "compress: %s\n", ZSTD_getErrorName(length));
            return 1;
        }
        for (k = 0; k < length; k++) {
            sum = (sum ^ packed[k]) * 1099511628211ull;
        }
        for (rounds = 0; rounds < 4; rounds++) {
            size_t back;
            memset(again, 0, part);
            back = ZSTD_decompress(again, part, packed, length);
            if (ZSTD_isError(back) || back != part || memcmp(plain, again, part) != 0) {
                fputs("decompress: not the same bytes\n", stderr);
                return 1;
            }
        }
        printf("level %d: %zu -> %zu, %016llx\n", levels[i], part, length, sum);
    }
    return 0;
}
