// Serves three connections of a preopened listening socket, waiting with poll, then ends.
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int listener = atoi(argv[1]);
    CHECK(!fcntl(listener, F_SETFL, O_NONBLOCK));
    for (int served = 0; served < 3; served++) {
        struct pollfd wanted = {listener, POLLIN, 0};
        CHECK(poll(&wanted, 1, 10000) == 1);
        int fd = accept(listener, NULL, NULL);
        CHECK(fd > listener);
        char buffer[1024];
        ssize_t count;
        while ((count = recv(fd, buffer, sizeof buffer, 0)) > 0)
            for (ssize_t sent = 0; sent < count;) {
                ssize_t part = send(fd, buffer + sent, (size_t)(count - sent), 0);
                CHECK(part > 0);
                sent += part;
            }
        CHECK(count == 0);
        CHECK(!shutdown(fd, SHUT_WR) && !close(fd));
    }
    FAILS(accept(listener, NULL, NULL), EAGAIN);
    return 0;
}
