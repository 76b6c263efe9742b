// Clocks, sleeping, polling, randomness.
#include "check.h"
#include <poll.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/select.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static double now(clockid_t clock) {
    struct timespec time;
    CHECK(!clock_gettime(clock, &time));
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void slept(double start, double least) {
    double took = now(CLOCK_MONOTONIC) - start;
    CHECK(took >= least && took < least + 5);
}

int main(void) {
    struct timespec resolution, span = {0, 20000000};
    CHECK(!clock_getres(CLOCK_MONOTONIC, &resolution) && resolution.tv_nsec > 0);
    CHECK(now(CLOCK_REALTIME) > 1.6e9 && time(NULL) > 1600000000);
    double start = now(CLOCK_MONOTONIC);
    CHECK(!nanosleep(&span, NULL));
    slept(start, 0.02);
    start = now(CLOCK_MONOTONIC);
    CHECK(!usleep(10000));
    slept(start, 0.01);
    start = now(CLOCK_MONOTONIC);
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += 20000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    CHECK(!clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL));
    slept(start, 0.0195);
    // Standard input is a pipe that stays open and silent, then gets one word.
    struct pollfd fds[] = {{0, POLLIN, 0}, {1, POLLOUT, 0}};
    start = now(CLOCK_MONOTONIC);
    CHECK(poll(fds, 1, 10) == 0);
    slept(start, 0.01);
    CHECK(poll(fds, 2, -1) == 1 && fds[0].revents == 0 && fds[1].revents == POLLOUT);
    fputs("ready\n", stderr);
    CHECK(poll(fds, 1, 10000) == 1 && fds[0].revents & POLLIN);
    char word[8];
    CHECK(read(0, word, sizeof word) == 4 && !memcmp(word, "ping", 4));
    fd_set set;
    FD_ZERO(&set);
    FD_SET(1, &set);
    struct timeval timeout = {1, 0};
    CHECK(select(2, NULL, &set, NULL, &timeout) == 1 && FD_ISSET(1, &set));
    struct pollfd closed = {77, POLLIN, 0};
    CHECK(poll(&closed, 1, 100) == 1 && closed.revents == POLLNVAL);
    unsigned char first[64] = {0}, second[64] = {0};
    CHECK(!getentropy(first, sizeof first) && !getentropy(second, sizeof second));
    CHECK(memcmp(first, second, sizeof first));
    CHECK(!sched_yield());
    puts("clocks ok");
}
