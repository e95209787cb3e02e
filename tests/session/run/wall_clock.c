/* Preloaded: a wall clock that is off by the seconds in the file $WALL_CLOCK_OFFSET_S, where there is
 * one. Other clocks and all timers are the machine's own, as when an administrator sets the clock.
 * (libfaketime also shifts absolute timers of the monotonic clock, so Python cannot sleep in it.) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    const int result = real(clock, now);
    if (result != 0 || clock != CLOCK_REALTIME) return result;
    const char *path = getenv("WALL_CLOCK_OFFSET_S");
    FILE *file = path ? fopen(path, "re") : NULL;
    long offset_s = 0;
    if (file) {
        if (fscanf(file, "%ld", &offset_s) != 1) offset_s = 0;
        fclose(file);
    }
    now->tv_sec += offset_s;
    return 0;
}
