/* Shifts the wall clock of a process that preloads it, by the microseconds in a file.
 *
 * The time comes from the kernel and not from the next library, because an allocator may read the clock before any symbol
 * can be looked up. The monotonic clock is not shifted.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift_us;

__attribute__((constructor)) static void map_shift(void) {
    const char *path = getenv("CLOCK_SHIFT_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        shift_us = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && shift_us && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = now->tv_nsec + (*shift_us % 1000000) * 1000 + 1000000000;
        now->tv_sec += *shift_us / 1000000 + ns / 1000000000 - 1;
        now->tv_nsec = ns % 1000000000;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise))
        return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec precise;
    if (clock_gettime(CLOCK_REALTIME, &precise))
        return -1;
    if (seconds)
        *seconds = precise.tv_sec;
    return precise.tv_sec;
}
