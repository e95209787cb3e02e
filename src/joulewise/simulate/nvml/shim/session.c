/* The connection to the simulation: memory, socket, reference count; what every call begins with. */
#define _GNU_SOURCE
#include "nvml.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL
#define SLOT_NS (2 * NS_PER_S) /* with SPREAD: latency.py */
#define SPREAD 0.44
#define CONTENTION 4 /* a channel of noise */
#define SPIN_BELOW_NS 100000 /* a sleep takes 50 us longer than asked */

struct nvmlDevice_st {
    char unused;
};

/* By this symbol any program can know that the GPUs are simulated: a real library has none. */
API const int joulewise_simulated = 1;

struct jw_header *jw;
static struct nvmlDevice_st devices[JW_MAX_GPUS];
static size_t mapped_size;
static struct stat mapped_file;
static _Atomic unsigned references;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int line = -1; /* the socket to the engine: while it is open, this is a client */
static size_t owed;           /* bytes that the engine has not answered yet */

struct jw_gpu *gpu_at(unsigned index) {
    return (struct jw_gpu *)((char *)jw + sizeof *jw) + index;
}

unsigned index_of(const struct jw_gpu *gpu) { return (unsigned)(gpu - gpu_at(0)); }

nvmlDevice_t handle_of(unsigned index) { return &devices[index]; }

int64_t monotonic_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * NS_PER_S + t.tv_nsec;
}

int64_t now_ns(void) {
    const int64_t frozen = jw->frozen_ns;
    return frozen ? frozen : monotonic_ns();
}

int64_t wall_us(int64_t t_ns) { return (t_ns + jw->wall_offset_ns) / 1000; }

/* ---- the engine's line ---- */

/* Waits for the answer, but not for ever: an engine that is silent may have been stopped. */
static void tell(const char *words) {
    char answers[64];
    if (send(line, words, strlen(words), MSG_NOSIGNAL) < 0) return;
    owed += strlen("ok\n");
    while (owed) {
        const ssize_t n = recv(line, answers, owed < sizeof answers ? owed : sizeof answers, 0);
        if (n > 0)
            owed -= (size_t)n;
        else if (n == 0 || errno != EINTR)
            return;
    }
}

static void hang_up(void) {
    if (line >= 0) close(line);
    line = -1;
    owed = 0;
}

/* All of them hold the lock. */
static bool connect_line(void) {
    const size_t length = strnlen(jw->socket, sizeof jw->socket);
    if (length == 0 || line >= 0) return true;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path + 1, jw->socket, length);
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    const struct timeval patience = {.tv_sec = 1};
    line = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (line < 0) return false;
    setsockopt(line, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(line, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience); /* for connect, too */
    if (connect(line, (struct sockaddr *)&address, size) != 0) {
        hang_up();
        return false;
    }
    tell("client\n");
    return true;
}

/* Whether the engine is there: when it ends, however it ends, the kernel hangs up for it. A child
 * after its fork has yet to connect. */
static bool engine_lives(void) {
    if (!jw->socket[0]) return true;
    if (line < 0) {
        pthread_mutex_lock(&lock);
        const bool connected = connect_line();
        pthread_mutex_unlock(&lock);
        if (!connected) return errno != ECONNREFUSED;
    }
    struct pollfd end = {.fd = line};
    return poll(&end, 1, 0) <= 0 || !(end.revents & POLLHUP);
}

/* What was set is set already; an engine that does not answer in time reads it later. */
void changed(const struct jw_gpu *gpu) {
    char words[32];
    snprintf(words, sizeof words, "changed %u\n", index_of(gpu));
    pthread_mutex_lock(&lock);
    if (line >= 0) tell(words);
    pthread_mutex_unlock(&lock);
}

/* A child is a client of its own: with the parent's line it would keep the parent alive. */
static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }
static void in_child(void) {
    hang_up();
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void on_load(void) {
    pthread_atfork(before_fork, after_fork, in_child);
}

/* ---- init and shutdown ---- */

static nvmlReturn_t attach(void) {
    const char *path = getenv("JOULEWISE_SIM");
    struct stat file;
    const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return NVML_ERROR_DRIVER_NOT_LOADED;
    if (fstat(fd, &file) != 0 || (size_t)file.st_size < sizeof *jw) {
        close(fd);
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    if (jw && file.st_ino == mapped_file.st_ino && file.st_dev == mapped_file.st_dev) {
        close(fd);
        return NVML_SUCCESS;
    }
    if (jw) munmap(jw, mapped_size);
    mapped_size = (size_t)file.st_size;
    void *memory = mmap(NULL, mapped_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    jw = memory == MAP_FAILED ? NULL : memory;
    if (!jw) return NVML_ERROR_DRIVER_NOT_LOADED;
    mapped_file = file;
    if (jw->magic == JW_MAGIC && jw->header_size == sizeof *jw &&
        jw->gpu_size == sizeof(struct jw_gpu) && jw->gpus <= JW_MAX_GPUS &&
        mapped_size >= sizeof *jw + jw->gpus * sizeof(struct jw_gpu))
        return NVML_SUCCESS;
    munmap(jw, mapped_size);
    jw = NULL;
    return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
}

static nvmlReturn_t begin(struct jw_faults *faults, const char *call, int cost);

static nvmlReturn_t initialise(void) {
    pthread_mutex_lock(&lock);
    nvmlReturn_t result = references ? NVML_SUCCESS : attach();
    if (result == NVML_SUCCESS) result = begin(&jw->faults, "nvmlInit", JW_COST_IDENTITY);
    if (result == NVML_SUCCESS && !connect_line()) result = NVML_ERROR_DRIVER_NOT_LOADED;
    if (result == NVML_SUCCESS) references++;
    pthread_mutex_unlock(&lock);
    return result;
}

API nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return initialise();
}

API nvmlReturn_t nvmlInit_v2(void) { return initialise(); }
API nvmlReturn_t nvmlInit(void) { return initialise(); }

API nvmlReturn_t nvmlShutdown(void) {
    nvmlReturn_t result = NVML_SUCCESS;
    pthread_mutex_lock(&lock);
    if (!references)
        result = NVML_ERROR_UNINITIALIZED;
    else if (--references == 0)
        hang_up();
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- what every call begins with ---- */

/* GetPowerUsage, DeviceGetPowerUsage and nvmlDeviceGetPowerUsage mean any version of the call. */
static bool names(const char *wanted, const char *call) {
    const size_t length = strlen(wanted);
    const size_t offsets[] = {0, 4, 10};
    for (int i = 0; i < 3 && offsets[i] <= strlen(call); i++) {
        const char *rest = call + offsets[i];
        if (strncmp(rest, wanted, length) != 0) continue;
        rest += length;
        if (*rest == '\0' || (rest[0] == '_' && rest[1] == 'v')) return true;
    }
    return false;
}

static bool active(const struct jw_fault *fault, int64_t now) {
    return fault->start_ns <= now && now < fault->end_ns;
}

struct jw_fault *fault_at(struct jw_gpu *gpu, uint32_t kind, int64_t t_ns) {
    struct jw_fault *last = NULL;
    for (uint32_t i = 0; i < gpu->faults.count; i++) {
        struct jw_fault *fault = &gpu->faults.entries[i];
        if (fault->kind == kind && active(fault, t_ns)) last = fault;
    }
    return last;
}

static void take(int64_t began_ns, int64_t duration_ns) {
    const int64_t until = began_ns + duration_ns;
    const struct timespec end = {.tv_sec = until / NS_PER_S, .tv_nsec = until % NS_PER_S};
    if (duration_ns >= SPIN_BELOW_NS)
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR) continue;
    else
        while (monotonic_ns() < until) continue;
}

/* For the driver, which others use too: latency.py has the formula. Exported for its test. */
API int64_t jw_pcie_wait_ns(int64_t t_ns) {
    const double contention = 1 + SPREAD * noise(jw->contention_seed, t_ns / SLOT_NS, CONTENTION);
    return (int64_t)rint((double)jw->pcie_wait_ns * fmax(0, contention));
}

static nvmlReturn_t begin(struct jw_faults *faults, const char *call, int cost) {
    int64_t duration = jw->latency_ns[cost];
    if (cost == JW_COST_PCIE) duration += jw_pcie_wait_ns(now_ns());
    nvmlReturn_t result = NVML_SUCCESS;
    for (uint32_t i = 0; i < faults->count; i++) {
        const struct jw_fault *fault = &faults->entries[i];
        if (!active(fault, now_ns())) continue;
        if (fault->kind == JW_FAULT_LOST && faults != &jw->faults) return NVML_ERROR_GPU_IS_LOST;
        if (fault->call[0] && !names(fault->call, call)) continue;
        if (fault->kind == JW_FAULT_CALL) result = (nvmlReturn_t)fault->code;
        if (fault->kind == JW_FAULT_SLOW) duration += fault->amount;
    }
    if (duration) take(monotonic_ns(), duration);
    return result;
}

bool initialised(void) { return references > 0; }

nvmlReturn_t enter_system(const char *call, int cost) {
    if (!references) return NVML_ERROR_UNINITIALIZED;
    return begin(&jw->faults, call, cost);
}

nvmlReturn_t enter(nvmlDevice_t device, const char *call, int cost, struct jw_gpu **gpu) {
    if (!references) return NVML_ERROR_UNINITIALIZED;
    const uintptr_t offset = (uintptr_t)device - (uintptr_t)devices;
    if (offset >= jw->gpus * sizeof *devices) return NVML_ERROR_INVALID_ARGUMENT;
    *gpu = gpu_at((unsigned)(offset / sizeof *devices));
    if (!engine_lives()) return NVML_ERROR_GPU_IS_LOST;
    return begin(&(*gpu)->faults, call, cost);
}

/* Whether this process may set limits and clocks. A real library has no such function. */
API int joulewise_permits_setting(void) {
    return references && (jw->as_root || geteuid() == 0);
}

nvmlReturn_t enter_setter(nvmlDevice_t device, const char *call, struct jw_gpu **gpu) {
    const nvmlReturn_t result = enter(device, call, JW_COST_SET, gpu);
    if (result != NVML_SUCCESS) return result;
    const bool allowed = joulewise_permits_setting();
    const bool denied = fault_at(*gpu, JW_FAULT_DENIED, now_ns());
    return allowed && !denied ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION;
}
