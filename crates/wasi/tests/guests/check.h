// A failed check prints where and ends the program with 1.
#pragma once
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                    \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition,   \
                    errno, strerror(errno));                                                \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

// The call fails with -1 and this errno.
#define FAILS(call, expected)                                                               \
    do {                                                                                    \
        errno = 0;                                                                          \
        CHECK((call) == -1);                                                                \
        CHECK(errno == (expected));                                                         \
    } while (0)
