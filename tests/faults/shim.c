/* Counts the calls that change files below a directory, and makes the Nth of them fail. Loaded by LD_PRELOAD.

   FAULT_DIRECTORY  the directory, absolute; without it, nothing is counted
   FAULT_COUNTER    a file of sizeof(struct counter) zeros, shared by all processes that count together
   FAULT_AT         N, counted from 1; 0: count only
   FAULT_ERROR      errno of the Nth call; 0: the process is killed instead of making the call
   FAULT_LASTS      1: all later calls fail too, as on a disk that stays full

   Writes through mmap, and those that the C library makes for buffered streams, are out of its reach. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct counter {
    long calls;
    char failed[256]; /* the call that failed first, and its file */
};

static struct counter *open_counter(const char *path) {
    static struct counter *shared;
    static char opened[PATH_MAX];
    if (shared && !strcmp(opened, path)) return shared;
    int fd = ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open"))(path, O_RDWR);
    if (fd < 0) return NULL;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    snprintf(opened, sizeof opened, "%s", path);
    return shared;
}

static int number(const char *variable) {
    const char *text = getenv(variable);
    return text ? atoi(text) : 0;
}

/* Whether this call, on an absolute path, has to fail; errno is set then. */
static int fails(const char *call, const char *path) {
    const char *directory = getenv("FAULT_DIRECTORY"), *file = getenv("FAULT_COUNTER");
    if (!directory || !file || strncmp(path, directory, strlen(directory))) return 0;
    int before = errno;
    struct counter *counter = open_counter(file);
    errno = before;
    if (!counter) return 0;
    int error = number("FAULT_ERROR"), at = number("FAULT_AT");
    if (error == ENOSPC && (!strcmp(call, "unlink") || !strcmp(call, "rmdir"))) return 0; /* needs no space */
    long call_number = __sync_add_and_fetch(&counter->calls, 1);
    if (!at || call_number < at || (call_number > at && !number("FAULT_LASTS"))) return 0;
    if (call_number == at) snprintf(counter->failed, sizeof counter->failed, "%s %s", call, path + strlen(directory));
    if (!error) kill(getpid(), SIGKILL);
    errno = error;
    return 1;
}

static int fails_at(const char *call, int directory, const char *path) {
    char whole[2 * PATH_MAX] = "", link[64];
    if (path[0] != '/') {
        snprintf(link, sizeof link, directory == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", directory);
        ssize_t length = readlink(link, whole, PATH_MAX);
        if (length < 0) return 0;
        whole[length] = '/';
        whole[length + 1] = 0;
    }
    strncat(whole, path, PATH_MAX - 1);
    return fails(call, whole);
}

static int fails_on(const char *call, int fd) {
    char link[64], path[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return getenv("FAULT_DIRECTORY") && readlink(link, path, sizeof path - 1) > 0 && fails(call, path);
}

#define CALL(name, returns, parameters, failure, arguments)                       \
    returns name parameters {                                                     \
        static returns(*real) parameters;                                         \
        if (!real) real = (returns(*) parameters)dlsym(RTLD_NEXT, #name);         \
        return failure ? (returns) - 1 : real arguments;                          \
    }

#define WRITES(name, parameters, ...) CALL(name, ssize_t, parameters, fails_on("write", fd), (__VA_ARGS__))
#define CHANGES(name, call, parameters, ...) CALL(name, int, parameters, fails_on(call, fd), (__VA_ARGS__))
#define NAMES(name, call, at, path, parameters, ...) CALL(name, int, parameters, fails_at(call, at, path), (__VA_ARGS__))

WRITES(write, (int fd, const void *data, size_t size), fd, data, size)
WRITES(pwrite, (int fd, const void *data, size_t size, off_t at), fd, data, size, at)
WRITES(pwrite64, (int fd, const void *data, size_t size, off64_t at), fd, data, size, at)
WRITES(writev, (int fd, const struct iovec *parts, int count), fd, parts, count)
WRITES(pwritev, (int fd, const struct iovec *parts, int count, off_t at), fd, parts, count, at)
WRITES(pwritev64, (int fd, const struct iovec *parts, int count, off64_t at), fd, parts, count, at)
WRITES(sendfile, (int fd, int in, off_t *at, size_t size), fd, in, at, size)
WRITES(sendfile64, (int fd, int in, off64_t *at, size_t size), fd, in, at, size)
CALL(copy_file_range, ssize_t, (int in, off64_t *from, int fd, off64_t *at, size_t size, unsigned flags),
     fails_on("write", fd), (in, from, fd, at, size, flags))

CHANGES(fsync, "fsync", (int fd), fd)
CHANGES(fdatasync, "fsync", (int fd), fd)
CHANGES(ftruncate, "truncate", (int fd, off_t size), fd, size)
CHANGES(ftruncate64, "truncate", (int fd, off64_t size), fd, size)
CHANGES(fallocate, "allocate", (int fd, int mode, off_t from, off_t size), fd, mode, from, size)
CHANGES(fallocate64, "allocate", (int fd, int mode, off64_t from, off64_t size), fd, mode, from, size)

NAMES(rename, "rename", AT_FDCWD, to, (const char *from, const char *to), from, to)
NAMES(renameat, "rename", there, to, (int here, const char *from, int there, const char *to), here, from, there, to)
NAMES(renameat2, "rename", there, to, (int here, const char *from, int there, const char *to, unsigned flags),
      here, from, there, to, flags)
NAMES(link, "link", AT_FDCWD, to, (const char *from, const char *to), from, to)
NAMES(linkat, "link", there, to, (int here, const char *from, int there, const char *to, int flags),
      here, from, there, to, flags)
NAMES(symlink, "link", AT_FDCWD, to, (const char *from, const char *to), from, to)
NAMES(mkdir, "mkdir", AT_FDCWD, path, (const char *path, mode_t mode), path, mode)
NAMES(mkdirat, "mkdir", at, path, (int at, const char *path, mode_t mode), at, path, mode)
NAMES(unlink, "unlink", AT_FDCWD, path, (const char *path), path)
NAMES(unlinkat, "unlink", at, path, (int at, const char *path, int flags), at, path, flags)
NAMES(rmdir, "rmdir", AT_FDCWD, path, (const char *path), path)
NAMES(truncate, "truncate", AT_FDCWD, path, (const char *path, off_t size), path, size)
NAMES(creat, "open", AT_FDCWD, path, (const char *path, mode_t mode), path, mode)
NAMES(creat64, "open", AT_FDCWD, path, (const char *path, mode_t mode), path, mode)

/* Opening changes a file if it creates or truncates it; opened for writing alone, it fails on a read-only disk. */
static int open_fails(int at, const char *path, int flags) {
    int writes = O_CREAT | O_TRUNC | (number("FAULT_ERROR") == EROFS ? O_WRONLY | O_RDWR : 0);
    return flags & writes && fails_at("open", at, path);
}

#define MODE                       \
    va_list rest;                  \
    va_start(rest, flags);         \
    mode_t mode = va_arg(rest, mode_t); \
    va_end(rest);

#define OPEN(name)                                                        \
    int name(const char *path, int flags, ...) {                          \
        static int (*real)(const char *, int, ...);                       \
        MODE if (!real) real = dlsym(RTLD_NEXT, #name);                   \
        return open_fails(AT_FDCWD, path, flags) ? -1 : real(path, flags, mode); \
    }

#define OPENAT(name)                                                      \
    int name(int at, const char *path, int flags, ...) {                  \
        static int (*real)(int, const char *, int, ...);                  \
        MODE if (!real) real = dlsym(RTLD_NEXT, #name);                   \
        return open_fails(at, path, flags) ? -1 : real(at, path, flags, mode); \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
