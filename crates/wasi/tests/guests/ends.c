// Ends as its argument says.
#include "check.h"
#include <unistd.h>

static void last(void) { puts("atexit"); }

int main(int argc, char **argv) {
    CHECK(argc == 2);
    atexit(last);
    if (!strcmp(argv[1], "exit"))
        exit(7);
    if (!strcmp(argv[1], "_exit"))
        _exit(259);
    if (!strcmp(argv[1], "trap"))
        __builtin_trap();
    if (!strcmp(argv[1], "sleep"))
        sleep(1000000);
    if (!strcmp(argv[1], "spin"))
        for (volatile int turns = 0;; turns++)
            ;
    if (!strcmp(argv[1], "read"))
        return (int)read(0, argv[1], 1);
    return 3;
}
