// WASI preview 1 for engines that bring no host of their own: wasm2c and wasm3. What includes this defines guest_memory() and
// guest_memory_bytes(), and then WASI_FUNCTIONS with W1 … W9 makes each function known to its engine.
//
// A guest's descriptor is the host's of the same number: 0, 1, 2, and 3 for the one directory, which the guest sees as "/". Paths are
// opened beneath a directory and nowhere else.

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

typedef uint32_t U;
typedef uint64_t L;

static uint8_t *guest_memory(void);
static uint64_t guest_memory_bytes(void);

enum { ROOT = 3, IOVECS = 1024, SUBSCRIPTIONS = 64, PATH_BYTES = 4096 };
enum { BADF = 8, FAULT = 21, INVAL = 28, IO = 29, NAMETOOLONG = 37, NOSYS = 52 };

static int guest_argc;
static char **guest_argv;

// Numbers of the specification's type errno.
static U code(int error) {
  switch (error) {
    case 0: return 0;
    case E2BIG: return 1;
    case EACCES: return 2;
    case EAGAIN: return 6;
    case EBADF: return BADF;
    case EBUSY: return 10;
    case EEXIST: return 20;
    case EFAULT: return FAULT;
    case EFBIG: return 22;
    case EINTR: return 27;
    case EINVAL: return INVAL;
    case EIO: return IO;
    case EISDIR: return 31;
    case ELOOP: return 32;
    case EMFILE: return 33;
    case EMLINK: return 34;
    case ENAMETOOLONG: return NAMETOOLONG;
    case ENFILE: return 41;
    case ENODEV: return 43;
    case ENOENT: return 44;
    case ENOMEM: return 48;
    case ENOSPC: return 51;
    case ENOSYS: return NOSYS;
    case ENOTDIR: return 54;
    case ENOTEMPTY: return 55;
    case ENOTSUP: return 58;
    case ENOTTY: return 59;
    case ENXIO: return 60;
    case EOVERFLOW: return 61;
    case EPERM: return 63;
    case EPIPE: return 64;
    case ERANGE: return 68;
    case EROFS: return 69;
    case ESPIPE: return 70;
    case EXDEV: return 76;  // out of the directory
    default: return IO;
  }
}

static U last(int result) { return result < 0 ? code(errno) : 0; }

// Where `bytes` bytes of the guest's memory begin, or NULL when they are not all in it.
static void *at(U offset, L bytes) {
  L end = guest_memory_bytes();
  return bytes <= end && offset <= end - bytes ? guest_memory() + offset : NULL;
}

static U put(U offset, const void *value, size_t bytes) {
  void *place = at(offset, bytes);
  if (!place) return FAULT;
  memcpy(place, value, bytes);
  return 0;
}
static U put32(U offset, U value) { return put(offset, &value, sizeof value); }
static U put64(U offset, L value) { return put(offset, &value, sizeof value); }

static U strings_sizes(int count, char **strings, U count_out, U bytes_out) {
  U bytes = 0;
  for (int i = 0; i < count; i++) bytes += (U)strlen(strings[i]) + 1;
  U error = put32(count_out, (U)count);
  return error ? error : put32(bytes_out, bytes);
}

static U wasi_args_sizes_get(U count, U bytes) { return strings_sizes(guest_argc, guest_argv, count, bytes); }
static U wasi_environ_sizes_get(U count, U bytes) { return strings_sizes(0, NULL, count, bytes); }
static U wasi_environ_get(U pointers, U text) { return 0; }

static U wasi_args_get(U pointers, U text) {
  for (int i = 0; i < guest_argc; i++) {
    size_t bytes = strlen(guest_argv[i]) + 1;
    U error = put32(pointers + 4 * (U)i, text);
    if (!error) error = put(text, guest_argv[i], bytes);
    if (error) return error;
    text += (U)bytes;
  }
  return 0;
}

static clockid_t clock_of(U id) { return id == 0 ? CLOCK_REALTIME : id == 1 ? CLOCK_MONOTONIC : id == 2 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_THREAD_CPUTIME_ID; }
static L nanoseconds(struct timespec time) { return (L)time.tv_sec * 1000000000 + (L)time.tv_nsec; }
static struct timespec timespec_of(L value) { return (struct timespec){(time_t)(value / 1000000000), (long)(value % 1000000000)}; }

static U wasi_clock_time_get(U id, L precision, U out) {
  struct timespec now;
  if (clock_gettime(clock_of(id), &now)) return code(errno);
  return put64(out, nanoseconds(now));
}
static U wasi_clock_res_get(U id, U out) {
  struct timespec resolution;
  if (clock_getres(clock_of(id), &resolution)) return code(errno);
  return put64(out, nanoseconds(resolution));
}
static U wasi_random_get(U out, U bytes) {
  uint8_t *place = at(out, bytes);
  if (!place) return FAULT;
  while (bytes > 0) {
    ssize_t got = getrandom(place, bytes, 0);
    if (got < 0) return code(errno);
    place += got;
    bytes -= (U)got;
  }
  return 0;
}
static U wasi_sched_yield(void) { return last(sched_yield()); }
static U wasi_proc_exit(U status) {
  fflush(NULL);
  _exit((int)status);
}

// The guest's vectors as the host's: their number, or -1 when they are not in its memory.
static int vectors(struct iovec *vector, U iovs, U count) {
  if (count > IOVECS) count = IOVECS;
  U *pairs = at(iovs, (L)count * 8);
  if (!pairs) return -1;
  for (U i = 0; i < count; i++) {
    vector[i].iov_len = pairs[2 * i + 1];
    vector[i].iov_base = at(pairs[2 * i], pairs[2 * i + 1]);
    if (!vector[i].iov_base) return -1;
  }
  return (int)count;
}

enum transfer { READ, WRITE, PREAD, PWRITE };
static U transfer(enum transfer kind, U fd, U iovs, U count, L offset, U out) {
  struct iovec vector[IOVECS];
  int used = vectors(vector, iovs, count);
  if (used < 0) return FAULT;
  ssize_t done = kind == READ    ? readv((int)fd, vector, used)
                 : kind == WRITE ? writev((int)fd, vector, used)
                 : kind == PREAD ? preadv((int)fd, vector, used, (off_t)offset)
                                 : pwritev((int)fd, vector, used, (off_t)offset);
  return done < 0 ? code(errno) : put32(out, (U)done);
}
static U wasi_fd_read(U fd, U iovs, U count, U out) { return transfer(READ, fd, iovs, count, 0, out); }
static U wasi_fd_write(U fd, U iovs, U count, U out) { return transfer(WRITE, fd, iovs, count, 0, out); }
static U wasi_fd_pread(U fd, U iovs, U count, L offset, U out) { return transfer(PREAD, fd, iovs, count, offset, out); }
static U wasi_fd_pwrite(U fd, U iovs, U count, L offset, U out) { return transfer(PWRITE, fd, iovs, count, offset, out); }

static U wasi_fd_close(U fd) { return last(close((int)fd)); }
static U wasi_fd_sync(U fd) { return last(fsync((int)fd)); }
static U wasi_fd_datasync(U fd) { return last(fdatasync((int)fd)); }
static U wasi_fd_advise(U fd, L offset, L bytes, U advice) { return 0; }
static U wasi_fd_allocate(U fd, L offset, L bytes) { return code(posix_fallocate((int)fd, (off_t)offset, (off_t)bytes)); }
static U wasi_fd_filestat_set_size(U fd, L bytes) { return last(ftruncate((int)fd, (off_t)bytes)); }
static U wasi_fd_renumber(U from, U to) { return dup2((int)from, (int)to) < 0 ? code(errno) : last(close((int)from)); }
static U wasi_fd_seek(U fd, L offset, U whence, U out) {
  if (whence > 2) return INVAL;
  off_t place = lseek((int)fd, (off_t)offset, whence == 0 ? SEEK_SET : whence == 1 ? SEEK_CUR : SEEK_END);
  return place < 0 ? code(errno) : put64(out, (L)place);
}
static U wasi_fd_tell(U fd, U out) { return wasi_fd_seek(fd, 0, 1, out); }

static U wasi_fd_prestat_get(U fd, U out) {
  if (fd != ROOT) return BADF;
  L directory_with_name_of_one_byte = (L)1 << 32;
  return put64(out, directory_with_name_of_one_byte);
}
static U wasi_fd_prestat_dir_name(U fd, U out, U bytes) {
  if (fd != ROOT) return BADF;
  return bytes < 1 ? NAMETOOLONG : put(out, "/", 1);
}

// Numbers of the specification's type filetype.
static uint8_t file_type(mode_t mode) {
  return S_ISBLK(mode) ? 1 : S_ISCHR(mode) ? 2 : S_ISDIR(mode) ? 3 : S_ISREG(mode) ? 4 : S_ISSOCK(mode) ? 6 : S_ISLNK(mode) ? 7 : 0;
}

static U wasi_fd_fdstat_get(U fd, U out) {
  struct stat status;
  int flags = fcntl((int)fd, F_GETFL);
  if (flags < 0 || fstat((int)fd, &status)) return code(errno);
  uint8_t answer[24] = {file_type(status.st_mode)};
  answer[2] = (uint8_t)((flags & O_APPEND ? 1 : 0) | (flags & O_NONBLOCK ? 4 : 0));
  memset(answer + 8, 0xff, 16);
  // A terminal or pipe cannot be sought in: wasi-libc tells by these rights whether it is one.
  if (S_ISCHR(status.st_mode)) answer[8] &= (uint8_t)~0x24;
  return put(out, answer, sizeof answer);
}
static U wasi_fd_fdstat_set_flags(U fd, U flags) { return last(fcntl((int)fd, F_SETFL, (flags & 1 ? O_APPEND : 0) | (flags & 4 ? O_NONBLOCK : 0))); }
static U wasi_fd_fdstat_set_rights(U fd, L base, L inheriting) { return 0; }

static U put_stat(U out, const struct stat *status) {
  L answer[8] = {status->st_dev,  status->st_ino, file_type(status->st_mode),   status->st_nlink,
                 (L)status->st_size, nanoseconds(status->st_atim), nanoseconds(status->st_mtim), nanoseconds(status->st_ctim)};
  return put(out, answer, sizeof answer);
}
static U wasi_fd_filestat_get(U fd, U out) {
  struct stat status;
  return fstat((int)fd, &status) ? code(errno) : put_stat(out, &status);
}

// Descriptor of the directory that holds the path's last part, which is copied to `leaf`; -1 and errno when there is none.
static int parent(U fd, U path, U bytes, char *leaf) {
  char text[PATH_BYTES];
  char *from = at(path, bytes);
  if (!from) return errno = EFAULT, -1;
  if (bytes >= PATH_BYTES) return errno = ENAMETOOLONG, -1;
  memcpy(text, from, bytes);
  text[bytes] = 0;
  while (bytes > 1 && text[bytes - 1] == '/') text[--bytes] = 0;
  char *slash = strrchr(text, '/');
  strcpy(leaf, slash ? slash + 1 : text);
  if (slash) *slash = 0;
  if (!strcmp(leaf, "..")) return errno = EPERM, -1;
  struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_BENEATH};
  return (int)syscall(SYS_openat2, (int)fd, slash && *text ? text : ".", &how, sizeof how);
}

// Does something with a path's parent directory `directory` and last part `leaf`; `result` below 0 means errno.
#define IN_PARENT(fd, path, bytes, call)                        \
  char leaf[PATH_BYTES];                                        \
  int directory = parent(fd, path, bytes, leaf);                \
  if (directory < 0) return code(errno);                        \
  int result = (call), error = errno;                           \
  close(directory);                                             \
  if (result < 0) return code(error);

static U wasi_path_create_directory(U fd, U path, U bytes) {
  IN_PARENT(fd, path, bytes, mkdirat(directory, leaf, 0777))
  return 0;
}
static U wasi_path_remove_directory(U fd, U path, U bytes) {
  IN_PARENT(fd, path, bytes, unlinkat(directory, leaf, AT_REMOVEDIR))
  return 0;
}
static U wasi_path_unlink_file(U fd, U path, U bytes) {
  IN_PARENT(fd, path, bytes, unlinkat(directory, leaf, 0))
  return 0;
}
static U wasi_path_readlink(U fd, U path, U bytes, U out, U room, U used) {
  char *place = at(out, room);
  if (!place) return FAULT;
  IN_PARENT(fd, path, bytes, (int)readlinkat(directory, leaf, place, room))
  return put32(used, (U)result);
}
static U wasi_path_rename(U from, U path, U bytes, U to, U new_path, U new_bytes) {
  char new_leaf[PATH_BYTES];
  int new_directory = parent(to, new_path, new_bytes, new_leaf);
  if (new_directory < 0) return code(errno);
  char leaf[PATH_BYTES];
  int directory = parent(from, path, bytes, leaf);
  U error = directory < 0 ? code(errno) : last(renameat(directory, leaf, new_directory, new_leaf));
  if (directory >= 0) close(directory);
  close(new_directory);
  return error;
}

static int open_beneath(int directory, const char *leaf, U follow, L flags) {
  struct open_how how = {.flags = flags | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW), .resolve = RESOLVE_BENEATH};
  if (flags & O_CREAT) how.mode = 0666;
  return (int)syscall(SYS_openat2, directory, leaf, &how, sizeof how);
}
static int whole_path(U fd, U path, U bytes, U follow, L flags) {
  char text[PATH_BYTES];
  char *from = at(path, bytes);
  if (!from) return errno = EFAULT, -1;
  if (bytes >= PATH_BYTES) return errno = ENAMETOOLONG, -1;
  memcpy(text, from, bytes);
  text[bytes] = 0;
  return open_beneath((int)fd, text, follow, flags);
}

static U wasi_path_open(U fd, U lookup, U path, U bytes, U oflags, L rights, L inheriting, U fdflags, U out) {
  enum { RIGHT_READ = 2, RIGHT_WRITE = 64 };
  int write = (rights & RIGHT_WRITE) != 0, read = (rights & RIGHT_READ) != 0 || !write;
  L flags = (L)(write && read ? O_RDWR : write ? O_WRONLY : O_RDONLY);
  if (oflags & 2) flags = O_RDONLY | O_DIRECTORY;
  flags |= (L)((oflags & 1 ? O_CREAT : 0) | (oflags & 4 ? O_EXCL : 0) | (oflags & 8 ? O_TRUNC : 0));
  flags |= (L)((fdflags & 1 ? O_APPEND : 0) | (fdflags & 2 ? O_DSYNC : 0) | (fdflags & 4 ? O_NONBLOCK : 0) | (fdflags & 16 ? O_SYNC : 0));
  int opened = whole_path(fd, path, bytes, lookup & 1, flags);
  // The rights that wasi-libc asks for are all that it could use: a directory is still opened for reading only.
  if (opened < 0 && errno == EISDIR && !(oflags & 1)) opened = whole_path(fd, path, bytes, lookup & 1, O_RDONLY | O_DIRECTORY);
  return opened < 0 ? code(errno) : put32(out, (U)opened);
}
static U wasi_path_filestat_get(U fd, U lookup, U path, U bytes, U out) {
  struct stat status;
  int opened = whole_path(fd, path, bytes, lookup & 1, O_PATH);
  if (opened < 0) return code(errno);
  int result = fstat(opened, &status), error = errno;
  close(opened);
  return result ? code(error) : put_stat(out, &status);
}

static void times(struct timespec *both, L access, L modification, U flags) {
  both[0] = timespec_of(access);
  both[1] = timespec_of(modification);
  both[0].tv_nsec = flags & 2 ? UTIME_NOW : flags & 1 ? both[0].tv_nsec : UTIME_OMIT;
  both[1].tv_nsec = flags & 8 ? UTIME_NOW : flags & 4 ? both[1].tv_nsec : UTIME_OMIT;
}
static U wasi_fd_filestat_set_times(U fd, L access, L modification, U flags) {
  struct timespec both[2];
  times(both, access, modification, flags);
  return last(futimens((int)fd, both));
}
static U wasi_path_filestat_set_times(U fd, U lookup, U path, U bytes, L access, L modification, U flags) {
  struct timespec both[2];
  times(both, access, modification, flags);
  IN_PARENT(fd, path, bytes, utimensat(directory, leaf, both, lookup & 1 ? 0 : AT_SYMLINK_NOFOLLOW))
  return 0;
}

static U wasi_fd_readdir(U fd, U out, U room, L cookie, U used) {
  uint8_t *place = at(out, room);
  if (!place) return FAULT;
  int copy = openat((int)fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *listing = copy < 0 ? NULL : fdopendir(copy);
  if (!listing) return code(errno);
  U filled = 0;
  L next = 0;
  for (struct dirent *entry; filled < room && (entry = readdir(listing));) {
    if (next++ < cookie) continue;
    uint8_t record[24 + sizeof entry->d_name] = {0};
    U bytes = (U)strlen(entry->d_name);
    L number = entry->d_ino;
    memcpy(record, &next, 8);
    memcpy(record + 8, &number, 8);
    memcpy(record + 16, &bytes, 4);
    record[20] = file_type(DTTOIF(entry->d_type));
    memcpy(record + 24, entry->d_name, bytes);
    U part = room - filled < 24 + bytes ? room - filled : 24 + bytes;
    memcpy(place + filled, record, part);
    filled += part;
  }
  closedir(listing);
  return put32(used, filled);
}

// Waits for the first clock or for a descriptor.
static U wasi_poll_oneoff(U in, U out, U count, U happened) {
  uint8_t *subscriptions = at(in, (L)count * 48);
  if (!subscriptions || !at(out, (L)count * 32)) return FAULT;
  if (count == 0 || count > SUBSCRIPTIONS) return INVAL;
  struct pollfd polled[SUBSCRIPTIONS];
  L soonest = UINT64_MAX;
  for (U i = 0; i < count; i++) {
    uint8_t *subscription = subscriptions + 48 * i;
    polled[i] = (struct pollfd){.fd = -1};
    U id;
    memcpy(&id, subscription + 16, 4);
    if (subscription[8] == 0) {
      L wait;
      memcpy(&wait, subscription + 24, 8);
      struct timespec now;
      clock_gettime(clock_of(id), &now);
      if (subscription[40] & 1) wait = wait > nanoseconds(now) ? wait - nanoseconds(now) : 0;
      if (wait < soonest) soonest = wait;
    } else {
      polled[i] = (struct pollfd){.fd = (int)id, .events = subscription[8] == 1 ? POLLIN : POLLOUT};
    }
  }
  struct timespec wait = timespec_of(soonest);
  int ready = ppoll(polled, count, soonest == UINT64_MAX ? NULL : &wait, NULL);
  if (ready < 0) return code(errno);
  U events = 0;
  for (U i = 0; i < count; i++) {
    uint8_t *subscription = subscriptions + 48 * i;
    // Nothing ready means that the soonest clock is due; a later one would be found due by the guest itself.
    if (subscription[8] == 0 ? ready > 0 : polled[i].revents == 0) continue;
    uint8_t event[32] = {0};
    memcpy(event, subscription, 8);
    event[10] = subscription[8];
    memcpy(guest_memory() + out + 32 * events++, event, sizeof event);
  }
  return put32(happened, events);
}

#define WASI_FUNCTIONS                                        \
  W2(args_get, U, U)                                          \
  W2(args_sizes_get, U, U)                                    \
  W2(environ_get, U, U)                                       \
  W2(environ_sizes_get, U, U)                                 \
  W3(clock_time_get, U, L, U)                                 \
  W2(clock_res_get, U, U)                                     \
  W2(random_get, U, U)                                        \
  W0(sched_yield)                                             \
  W4(fd_read, U, U, U, U)                                     \
  W4(fd_write, U, U, U, U)                                    \
  W5(fd_pread, U, U, U, L, U)                                 \
  W5(fd_pwrite, U, U, U, L, U)                                \
  W1(fd_close, U)                                             \
  W1(fd_sync, U)                                              \
  W1(fd_datasync, U)                                          \
  W4(fd_advise, U, L, L, U)                                   \
  W3(fd_allocate, U, L, L)                                    \
  W2(fd_filestat_set_size, U, L)                              \
  W2(fd_renumber, U, U)                                       \
  W4(fd_seek, U, L, U, U)                                     \
  W2(fd_tell, U, U)                                           \
  W2(fd_prestat_get, U, U)                                    \
  W3(fd_prestat_dir_name, U, U, U)                            \
  W2(fd_fdstat_get, U, U)                                     \
  W2(fd_fdstat_set_flags, U, U)                               \
  W3(fd_fdstat_set_rights, U, L, L)                           \
  W2(fd_filestat_get, U, U)                                   \
  W4(fd_filestat_set_times, U, L, L, U)                       \
  W5(fd_readdir, U, U, U, L, U)                               \
  W3(path_create_directory, U, U, U)                          \
  W3(path_remove_directory, U, U, U)                          \
  W3(path_unlink_file, U, U, U)                               \
  W6(path_readlink, U, U, U, U, U, U)                         \
  W6(path_rename, U, U, U, U, U, U)                           \
  W9(path_open, U, U, U, U, U, L, L, U, U)                    \
  W5(path_filestat_get, U, U, U, U, U)                        \
  W7(path_filestat_set_times, U, U, U, U, L, L, U)            \
  W4(poll_oneoff, U, U, U, U)

// The command line is PROGRAM DIRECTORY NAME ARGS…; NAME is what the guest sees as its own.
static void open_guest(int argc, char **argv, int skipped) {
  int directory = open(argv[skipped], O_RDONLY | O_DIRECTORY);
  if (directory < 0) {
    perror(argv[skipped]);
    exit(125);
  }
  if (directory != ROOT && (dup2(directory, ROOT) < 0 || close(directory))) exit(125);
  guest_argc = argc - skipped - 1;
  guest_argv = argv + skipped + 1;
}
