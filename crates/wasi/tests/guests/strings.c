// Arguments, environment and standard streams.
#include "check.h"
#include <unistd.h>

int main(int argc, char **argv) {
    CHECK(argc == 4);
    CHECK(!strcmp(argv[0], "strings.wasm"));
    CHECK(!strcmp(argv[1], "one two"));
    CHECK(!strcmp(argv[2], ""));
    CHECK(!strcmp(argv[3], "\xc3\xa4"));
    CHECK(argv[4] == NULL);
    CHECK(!strcmp(getenv("HOME"), "/home/guest"));
    CHECK(!strcmp(getenv("EMPTY"), ""));
    CHECK(getenv("PATH") == NULL);
    CHECK(!isatty(0) && !isatty(1) && !isatty(2));
    char line[64];
    CHECK(fgets(line, sizeof line, stdin));
    CHECK(!strcmp(line, "first line\n"));
    CHECK(fgets(line, sizeof line, stdin));
    CHECK(!strcmp(line, "last line"));
    CHECK(!fgets(line, sizeof line, stdin) && feof(stdin));
    // More than one buffer of the libc.
    for (int i = 0; i < 5000; i++)
        printf("%d\n", i);
    fprintf(stderr, "to the other stream\n");
    return 42;
}
