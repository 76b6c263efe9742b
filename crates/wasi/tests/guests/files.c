// Files through stdio and POSIX calls; the preopen is "/".
#include "check.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static void stdio(void) {
    FILE *file = fopen("/text", "w+");
    CHECK(file);
    for (int i = 0; i < 1000; i++)
        CHECK(fprintf(file, "line %d\n", i) > 0);
    CHECK(!fseek(file, 0, SEEK_SET));
    int number;
    for (int i = 0; i < 1000; i++)
        CHECK(fscanf(file, "line %d\n", &number) == 1 && number == i);
    CHECK(!fseek(file, -4, SEEK_END));
    char end[8];
    CHECK(fgets(end, sizeof end, file) && !strcmp(end, "999\n"));
    CHECK(ftell(file) == 8890);
    CHECK(!fclose(file));
    file = fopen("/text", "a");
    CHECK(file && fputs("more\n", file) >= 0 && !fclose(file));
    struct stat st;
    CHECK(!stat("/text", &st) && st.st_size == 8895);
    CHECK(!fopen("/gone", "r") && errno == ENOENT);
    CHECK(!fopen("/gone/deeper", "w") && errno == ENOENT);
}

static void posix(void) {
    int fd = open("/data", O_RDWR | O_CREAT | O_EXCL, 0644);
    CHECK(fd >= 4);
    FAILS(open("/data", O_RDWR | O_CREAT | O_EXCL, 0644), EEXIST);
    CHECK(write(fd, "0123456789", 10) == 10);
    char buffer[16] = {0};
    CHECK(pread(fd, buffer, 4, 3) == 4 && !memcmp(buffer, "3456", 4));
    CHECK(pwrite(fd, "xy", 2, 8) == 2);
    CHECK(lseek(fd, 0, SEEK_CUR) == 10 && lseek(fd, 2, SEEK_SET) == 2);
    CHECK(read(fd, buffer, sizeof buffer) == 8 && !memcmp(buffer, "234567xy", 8));
    CHECK(read(fd, buffer, sizeof buffer) == 0);
    FAILS(lseek(fd, -1, SEEK_SET), EINVAL);
    char a[3], b[5];
    struct iovec iov[] = {{b, 5}, {NULL, 0}, {a, 3}};
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && readv(fd, iov, 3) == 8);
    CHECK(!memcmp(b, "01234", 5) && !memcmp(a, "567", 3));
    struct iovec out[] = {{"ab", 2}, {"cde", 3}};
    CHECK(writev(fd, out, 2) == 5);
    CHECK(!ftruncate(fd, 3) && !fsync(fd) && !fdatasync(fd));
    struct stat st;
    CHECK(!fstat(fd, &st) && st.st_size == 3 && S_ISREG(st.st_mode) && st.st_nlink == 1);
    CHECK(!posix_fallocate(fd, 0, 100) && !fstat(fd, &st) && st.st_size == 100);
    struct timespec times[] = {{1000, 1}, {2000, 2}};
    CHECK(!futimens(fd, times) && !fstat(fd, &st));
    CHECK(st.st_atim.tv_sec == 1000 && st.st_mtim.tv_sec == 2000 && st.st_mtim.tv_nsec == 2);
    CHECK(fcntl(fd, F_GETFL) == O_RDWR);
    CHECK(!fcntl(fd, F_SETFL, O_APPEND) && fcntl(fd, F_GETFL) == (O_RDWR | O_APPEND));
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && write(fd, "end", 3) == 3 && lseek(fd, 0, SEEK_END) == 103);
    CHECK(!close(fd));
    FAILS(close(fd), EBADF);
    FAILS(read(fd, buffer, 1), EBADF);
    fd = open("/data", O_RDONLY);
    FAILS(write(fd, "x", 1), EBADF);
    CHECK(fcntl(fd, F_GETFL) == O_RDONLY && !close(fd));
    fd = open("/data", O_WRONLY | O_TRUNC);
    FAILS(read(fd, buffer, 1), EBADF);
    CHECK(fcntl(fd, F_GETFL) == O_WRONLY && !fstat(fd, &st) && st.st_size == 0 && !close(fd));
    FAILS(open("/", O_RDWR), EISDIR);
    FAILS(open("/data", O_RDONLY | O_DIRECTORY), ENOTDIR);
    FAILS(open("/data/x", O_RDONLY), ENOTDIR);
    CHECK(!access("/data", R_OK | W_OK));
    FAILS(access("/gone", F_OK), ENOENT);
}

static void large(void) {
    static char block[100000];
    for (size_t i = 0; i < sizeof block; i++)
        block[i] = (char)(i * 31 + (i >> 10));
    int fd = open("/large", O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0);
    for (int i = 0; i < 4; i++)
        CHECK(write(fd, block, sizeof block) == sizeof block);
    static char back[sizeof block];
    for (int i = 3; i >= 0; i--) {
        CHECK(pread(fd, back, sizeof back, i * (off_t)sizeof back) == sizeof back);
        CHECK(!memcmp(block, back, sizeof block));
    }
    off_t far = (off_t)5 << 32;
    CHECK(pwrite(fd, "!", 1, far) == 1 && lseek(fd, 0, SEEK_END) == far + 1);
    CHECK(!close(fd) && !unlink("/large"));
}

int main(void) {
    stdio();
    posix();
    large();
    // Descriptors run out with an error.
    int last = 0, count = 0;
    while ((last = open("/data", O_RDONLY)) >= 0)
        count++;
    CHECK(errno == EMFILE && count > 10);
    puts("files ok");
}
