/* Says that it is up, then sleeps. Argument: seconds (default 30). */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
    struct timespec wait = { argc > 1 ? atoi(argv[1]) : 30, 0 };
    puts("up");
    fflush(stdout);
    return nanosleep(&wait, NULL) == 0 ? 0 : 1;
}
