// Directories, names and links; the preopens are "/" (writable) and "/ro" (read-only, holds a file "fixed").
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

static int count(const char *path) {
    DIR *dir = opendir(path);
    CHECK(dir);
    int entries = 0;
    errno = 0;
    while (readdir(dir))
        entries++;
    CHECK(errno == 0);
    rewinddir(dir);
    int again = 0;
    while (readdir(dir))
        again++;
    CHECK(again == entries && !closedir(dir));
    return entries;
}

static void many(void) {
    CHECK(!mkdir("/many", 0755));
    FAILS(mkdir("/many", 0755), EEXIST);
    char path[64];
    for (int i = 0; i < 1000; i++) {
        snprintf(path, sizeof path, "/many/entry-with-some-length-%d", i);
        int fd = open(path, O_CREAT | O_WRONLY, 0600);
        CHECK(fd >= 0 && !close(fd));
    }
    CHECK(count("/many") == 1002);
    // Removing while reading: every entry is seen.
    DIR *dir = opendir("/many");
    struct dirent *entry;
    int removed = 0;
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] == '.') {
            CHECK(entry->d_type == DT_DIR);
            continue;
        }
        CHECK(entry->d_type == DT_REG);
        snprintf(path, sizeof path, "/many/%s", entry->d_name);
        struct stat st;
        CHECK(!stat(path, &st) && st.st_ino == entry->d_ino);
        CHECK(!unlink(path));
        removed++;
    }
    CHECK(removed == 1000 && !closedir(dir) && count("/many") == 2);
    CHECK(!rmdir("/many"));
    FAILS(rmdir("/many"), ENOENT);
    CHECK(!opendir("/many") && errno == ENOENT);
}

static void names(void) {
    CHECK(!mkdir("/a", 0755) && !mkdir("/a/b", 0755) && !mkdir("/a/b/c/", 0755));
    FAILS(rmdir("/a"), ENOTEMPTY);
    int fd = open("/a/b/file", O_CREAT | O_WRONLY, 0600);
    CHECK(fd >= 0 && write(fd, "x", 1) == 1 && !close(fd));
    CHECK(!rename("/a/b/file", "/a/moved") && access("/a/b/file", F_OK));
    CHECK(!link("/a/moved", "/a/hard"));
    struct stat one, two;
    CHECK(!stat("/a/moved", &one) && !stat("/a/hard", &two) && one.st_ino == two.st_ino && two.st_nlink == 2);
    CHECK(!symlink("moved", "/a/soft") && !stat("/a/soft", &two) && one.st_ino == two.st_ino);
    CHECK(!lstat("/a/soft", &two) && S_ISLNK(two.st_mode));
    char target[16] = {0};
    CHECK(readlink("/a/soft", target, sizeof target) == 5 && !strcmp(target, "moved"));
    CHECK(readlink("/a/soft", target, 2) == 2);
    FAILS(readlink("/a/moved", target, 2), EINVAL);
    FAILS(open("/a/soft", O_RDONLY | O_NOFOLLOW), ELOOP);
    FAILS(unlink("/a/b"), EISDIR);
    FAILS(rmdir("/a/moved"), ENOTDIR);
    FAILS(rename("/a", "/a/b/c/d"), EINVAL);
    int dir = open("/a", O_RDONLY | O_DIRECTORY);
    CHECK(dir >= 0);
    fd = openat(dir, "b/../moved", O_RDONLY);
    CHECK(fd >= 0 && !close(fd));
    CHECK(!fstatat(dir, "soft", &two, AT_SYMLINK_NOFOLLOW) && S_ISLNK(two.st_mode));
    CHECK(!renameat(dir, "moved", dir, "b/deep") && !unlinkat(dir, "b/deep", 0) && !unlinkat(dir, "soft", 0));
    CHECK(!mkdirat(dir, "e", 0700) && !unlinkat(dir, "e", AT_REMOVEDIR) && !close(dir));
    CHECK(!unlink("/a/hard") && !rmdir("/a/b/c") && !rmdir("/a/b") && !rmdir("/a"));
}

static void boundaries(void) {
    int root = open("/", O_RDONLY | O_DIRECTORY);
    CHECK(root >= 0);
    FAILS(openat(root, "..", O_RDONLY), EPERM);
    FAILS(openat(root, "../../etc/passwd", O_RDONLY), EPERM);
    FAILS(symlink("/etc/passwd", "/escape"), EPERM);
    CHECK(!symlink("../../../../etc/passwd", "/escape"));
    FAILS(open("/escape", O_RDONLY), EPERM);
    CHECK(!unlink("/escape"));
    // The read-only preopen.
    int fd = open("/ro/fixed", O_RDONLY);
    char text[8] = {0};
    CHECK(fd >= 0 && read(fd, text, sizeof text) == 5 && !memcmp(text, "fixed", 5) && !close(fd));
    FAILS(open("/ro/fixed", O_RDWR), EROFS);
    FAILS(open("/ro/new", O_CREAT | O_WRONLY, 0600), EROFS);
    FAILS(unlink("/ro/fixed"), EROFS);
    FAILS(mkdir("/ro/dir", 0700), EROFS);
    FAILS(rename("/ro/fixed", "/fixed"), EROFS);
    FAILS(link("/ro/fixed", "/fixed"), EROFS);
    CHECK(count("/ro") == 3);
}

int main(void) {
    many();
    names();
    boundaries();
    puts("directories ok");
}
