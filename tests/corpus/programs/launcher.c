/* Times programs from start to exit: launcher ROUNDS -- PROGRAM ARGS... -- PROGRAM ARGS... Runs them in turn, ROUNDS times, after
 * ten rounds that are not counted, their output thrown away; prints for each the median in microseconds, one a line. Small and
 * linked statically, so that the price of making the process is the same few microseconds for each. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define MAX_PROGRAMS 16
#define MAX_ROUNDS 100000
#define WARM_UP 10

extern char **environ;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec * 1e6 + (double) t.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    char **programs[MAX_PROGRAMS];
    double *samples[MAX_PROGRAMS];
    posix_spawn_file_actions_t actions;
    int count = 0, rounds = argc > 1 ? atoi(argv[1]) : 0, i, round;

    for (i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            argv[i] = NULL;
            if (count == MAX_PROGRAMS || i + 1 == argc) {
                break;
            }
            programs[count++] = &argv[i + 1];
        }
    }
    if (rounds < 1 || rounds > MAX_ROUNDS || count == 0 || i < argc) {
        fprintf(stderr, "usage: launcher ROUNDS -- PROGRAM ARGS... [-- PROGRAM ARGS...]\n");
        return 2;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    for (i = 0; i < count; i++) {
        samples[i] = malloc(sizeof(double) * (size_t) rounds);
        if (samples[i] == NULL) {
            return 1;
        }
    }
    for (round = -WARM_UP; round < rounds; round++) {
        for (i = 0; i < count; i++) {
            pid_t pid;
            int status;
            double start = now_us();
            int error = posix_spawn(&pid, programs[i][0], &actions, NULL, programs[i], environ);
            if (error != 0) {
                fprintf(stderr, "%s: %s\n", programs[i][0], strerror(error));
                return 1;
            }
            if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
                fprintf(stderr, "%s: did not exit with 0\n", programs[i][0]);
                return 1;
            }
            if (round >= 0) {
                samples[i][round] = now_us() - start;
            }
        }
    }
    for (i = 0; i < count; i++) {
        qsort(samples[i], (size_t) rounds, sizeof(double), ascending);
        printf("%.1f\n", samples[i][rounds / 2]);
    }
    return 0;
}
