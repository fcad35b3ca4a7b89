/* Preloaded into evalloom by the tests: records what it does to the disk, so that a loss of power can be played back.

   Every change of a regular file or of a folder is appended to the file POWER_JOURNAL, in the order in which it
   happened: a line of text, and the bytes that were written. power.py reads it. Processes that evalloom starts
   are left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int journal = -1;
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) ({                                                    \
    static __typeof__(&name) real;                                       \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);        \
    real;                                                                \
})

static int real_open(const char *path, int flags, mode_t mode) { return REAL(openat)(AT_FDCWD, path, flags, mode); }

__attribute__((constructor)) static void start(void) {
    const char *file = getenv("POWER_JOURNAL");
    if (file) journal = real_open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void record(const char *line, const void *data, size_t size) {
    struct iovec parts[] = {{(void *)line, strlen(line)}, {(void *)data, size}};
    // Not the function, which may be that of moments.c.
    if (journal >= 0 && syscall(SYS_writev, journal, parts, data ? 2 : 1) < 0) abort();
}

static int facts_of(int handle, struct stat *facts) { return journal >= 0 && fstat(handle, facts) == 0; }

/* The path of a name, with the folder that it is really in. */
static void place_of(int folder, const char *path, char *place) {
    char parent[2 * PATH_MAX], link[64], base[PATH_MAX];
    const char *name = strrchr(path, '/');
    if (path[0] != '/' && folder != AT_FDCWD) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t size = readlink(link, base, sizeof base - 1);
        base[size < 0 ? 0 : size] = 0;
        snprintf(parent, sizeof parent, "%s/%.*s", base, name ? (int)(name - path) : 0, path);
    } else if (name)
        snprintf(parent, sizeof parent, "%.*s", name == path ? 1 : (int)(name - path), path);
    else
        strcpy(parent, ".");
    if (!realpath(parent, place)) place[0] = 0;
    strcat(place, "/");
    strcat(place, name ? name + 1 : path);
}

static void record_name(char kind, int folder, const char *path, int other, const char *to) {
    int error = errno;
    char place[PATH_MAX], target[PATH_MAX], line[2 * PATH_MAX + 64];
    struct stat facts = {0};
    place_of(folder, path, place);
    if (to) place_of(other, to, target);
    fstatat(to ? other : folder, to ? to : path, &facts, AT_SYMLINK_NOFOLLOW);
    snprintf(line, sizeof line, "%c %lu %o %s\t%s\n", kind, facts.st_ino, facts.st_mode & 07777, place, to ? target : "");
    record(line, NULL, 0);
    errno = error;
}

static void record_change(char kind, int handle, const void *data, size_t size, off_t at) {
    struct stat facts;
    char line[128];
    int error = errno;
    if (facts_of(handle, &facts) && (S_ISREG(facts.st_mode) || kind == 'S')) {
        snprintf(line, sizeof line, "%c %lu %ld %zu\n", kind, facts.st_ino, (long)at, size);
        record(line, data, size);
    }
    errno = error;
}

static ssize_t positioned(int handle, const void *data, ssize_t size, off_t at) {
    if (size > 0) record_change('W', handle, data, size, at);
    return size;
}

/* Where a write without a position has just ended. */
static off_t start_of(int handle, ssize_t size) { return lseek(handle, 0, SEEK_CUR) - (size > 0 ? size : 0); }

#define IN_ORDER(type, action, after) ({    \
    pthread_mutex_lock(&order);             \
    type result = action;                   \
    if (result >= 0) { after; }             \
    pthread_mutex_unlock(&order);           \
    result;                                 \
})

ssize_t write(int handle, const void *data, size_t size) {
    struct stat facts;
    if (!facts_of(handle, &facts) || !S_ISREG(facts.st_mode)) return REAL(write)(handle, data, size);
    return IN_ORDER(ssize_t, REAL(write)(handle, data, size),
                    positioned(handle, data, result, start_of(handle, result)));
}
ssize_t pwrite(int handle, const void *data, size_t size, off_t at) {
    return IN_ORDER(ssize_t, REAL(pwrite)(handle, data, size, at), positioned(handle, data, result, at));
}
ssize_t pwrite64(int handle, const void *data, size_t size, off64_t at) { return pwrite(handle, data, size, at); }
ssize_t writev(int handle, const struct iovec *parts, int number) {
    struct stat facts;
    if (!facts_of(handle, &facts) || !S_ISREG(facts.st_mode)) return REAL(writev)(handle, parts, number);
    ssize_t total = 0;
    for (int part = 0; part < number; part++) {
        ssize_t size = write(handle, parts[part].iov_base, parts[part].iov_len);
        if (size < 0) return total ? total : size;
        total += size;
        if ((size_t)size < parts[part].iov_len) break;
    }
    return total;
}
int ftruncate(int handle, off_t size) {
    return IN_ORDER(int, REAL(ftruncate)(handle, size), record_change('T', handle, NULL, 0, size));
}
int ftruncate64(int handle, off64_t size) { return ftruncate(handle, size); }
int fsync(int handle) { return IN_ORDER(int, REAL(fsync)(handle), record_change('S', handle, NULL, 0, 0)); }
int fdatasync(int handle) { return IN_ORDER(int, REAL(fdatasync)(handle), record_change('S', handle, NULL, 0, 0)); }

static int opened(int folder, const char *path, int flags, mode_t mode) {
    if (!(flags & (O_CREAT | O_TRUNC))) return REAL(openat)(folder, path, flags, mode);
    pthread_mutex_lock(&order);
    struct stat before;
    int is_new = fstatat(folder, path, &before, 0) < 0, handle = REAL(openat)(folder, path, flags, mode);
    if (handle >= 0 && is_new) record_name('C', folder, path, 0, NULL);
    if (handle >= 0 && !is_new && (flags & O_TRUNC)) record_change('T', handle, NULL, 0, 0);
    pthread_mutex_unlock(&order);
    return handle;
}

#define OPEN(name, parameters, folder)                  \
    int name parameters {                               \
        va_list rest;                                   \
        va_start(rest, flags);                          \
        mode_t mode = va_arg(rest, mode_t);             \
        va_end(rest);                                   \
        return opened(folder, path, flags, mode);       \
    }
OPEN(open, (const char *path, int flags, ...), AT_FDCWD)
OPEN(open64, (const char *path, int flags, ...), AT_FDCWD)
OPEN(openat, (int folder, const char *path, int flags, ...), folder)
OPEN(openat64, (int folder, const char *path, int flags, ...), folder)

int mkdir(const char *path, mode_t mode) {
    return IN_ORDER(int, REAL(mkdir)(path, mode), record_name('D', AT_FDCWD, path, 0, NULL));
}
int renameat(int a, const char *from, int b, const char *to) {
    return IN_ORDER(int, REAL(renameat)(a, from, b, to), record_name('R', a, from, b, to));
}
int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }
int linkat(int a, const char *from, int b, const char *to, int flags) {
    return IN_ORDER(int, REAL(linkat)(a, from, b, to, flags), record_name('L', a, from, b, to));
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }
int unlinkat(int folder, const char *path, int flags) {
    return IN_ORDER(int, REAL(unlinkat)(folder, path, flags), record_name('U', folder, path, 0, NULL));
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
