/* Preloaded into evalloom by the tests: kills it at one of its disk operations, or sets its clock back there.

   Every call that changes the disk is a moment: writing, truncating, syncing, renaming, linking, removing. They are
   counted in the first eight bytes of the file MOMENTS_FILE, which outlive the process. At moment MOMENTS_KILL the
   process gets SIGKILL, in the middle of a write if it is one. From moment MOMENTS_BACK on, or always if that is
   negative, the clock of the day is an hour slow. Processes that evalloom starts are left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static long own_count, *count = &own_count, kill_at, back_at;

__attribute__((constructor)) static void start(void) {
    const char *file = getenv("MOMENTS_FILE"), *kills = getenv("MOMENTS_KILL"), *back = getenv("MOMENTS_BACK");
    int handle = file ? open(file, O_RDWR) : -1;
    void *shared = handle < 0 ? MAP_FAILED : mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
    if (shared != MAP_FAILED) count = shared;
    if (handle >= 0) close(handle);
    kill_at = kills ? atol(kills) : 0;
    back_at = back ? atol(back) : 0;
    unsetenv("LD_PRELOAD");
}

static int is_last(void) { return __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST) == kill_at; }

static void end(void) {
    kill(getpid(), SIGKILL);
    pause();
}

static int is_file(int handle) {
    struct stat facts;
    return fstat(handle, &facts) == 0 && S_ISREG(facts.st_mode);
}

#define REAL(name) ({                                                    \
    static __typeof__(&name) real;                                       \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);        \
    real;                                                                \
})
/* An operation that is done or not. */
#define WHOLE(name, parameters, arguments)  \
    int name parameters {                   \
        if (is_last()) end();               \
        return REAL(name) arguments;        \
    }
/* An operation that can be half done. */
#define TORN(name, parameters, half, arguments)         \
    ssize_t name parameters {                           \
        if (is_file(handle) && is_last()) {             \
            if (REAL(name) half < 0) end();             \
            end();                                      \
        }                                               \
        return REAL(name) arguments;                    \
    }

TORN(write, (int handle, const void *data, size_t size), (handle, data, size / 2), (handle, data, size))
TORN(pwrite, (int handle, const void *data, size_t size, off_t at), (handle, data, size / 2, at), (handle, data, size, at))
TORN(pwrite64, (int handle, const void *data, size_t size, off64_t at), (handle, data, size / 2, at), (handle, data, size, at))
TORN(writev, (int handle, const struct iovec *parts, int number), (handle, parts, number / 2), (handle, parts, number))
WHOLE(fsync, (int handle), (handle))
WHOLE(fdatasync, (int handle), (handle))
WHOLE(ftruncate, (int handle, off_t size), (handle, size))
WHOLE(ftruncate64, (int handle, off64_t size), (handle, size))
WHOLE(rename, (const char *from, const char *to), (from, to))
WHOLE(renameat, (int a, const char *from, int b, const char *to), (a, from, b, to))
WHOLE(link, (const char *from, const char *to), (from, to))
WHOLE(linkat, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags))
WHOLE(unlink, (const char *path), (path))
WHOLE(unlinkat, (int folder, const char *path, int flags), (folder, path, flags))
WHOLE(mkdir, (const char *path, mode_t mode), (path, mode))

static int is_back(void) { return back_at && __atomic_load_n(count, __ATOMIC_SEQ_CST) >= back_at; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = REAL(clock_gettime)(clock, now);
    if (clock == CLOCK_REALTIME && is_back()) now->tv_sec -= 3600;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int result = REAL(gettimeofday)(now, zone);
    if (is_back()) now->tv_sec -= 3600;
    return result;
}

time_t time(time_t *now) {
    time_t seconds = REAL(time)(NULL) - (is_back() ? 3600 : 0);
    if (now) *now = seconds;
    return seconds;
}
